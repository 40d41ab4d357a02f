// LSTM and GRU cells. On an accelerator PyTorch calls one fused operator a cell, for which there is no CPU kernel; here it is
// composed. `workspace` is what the backward needs, in a layout of our own.
#define AT_PER_OPERATOR_HEADERS  // TensorOperators.h would include every operator otherwise
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <tuple>

namespace vnpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor biased(const Tensor& gates, const OptionalTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

// d sigmoid and d tanh, of their results.
Tensor sigmoid_slope(const Tensor& s) { return s * (1 - s); }
Tensor tanh_slope(const Tensor& t) { return 1 - t * t; }

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto gates = (biased(input_gates, input_bias) + biased(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(), out = gates[3].sigmoid();
  auto cy = forget * cx + in * cell;
  auto hy = out * cy.tanh();
  return {std::move(hy), std::move(cy), at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  const bool from_hy = grad_hy && grad_hy->defined(), from_cy = grad_cy && grad_cy->defined();
  if (!from_hy && !from_cy) return {};
  const auto gates = workspace.chunk(4, 1);
  const auto &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const auto tanh_cy = cy.tanh();
  auto grad_out = at::zeros_like(out);
  auto grad_cell_state = at::zeros_like(cx);
  if (from_hy) {
    grad_out = *grad_hy * tanh_cy * sigmoid_slope(out);
    grad_cell_state = *grad_hy * out * tanh_slope(tanh_cy);
  }
  if (from_cy) grad_cell_state = grad_cell_state + *grad_cy;
  auto grad_gates = at::cat({grad_cell_state * cell * sigmoid_slope(in), grad_cell_state * cx * sigmoid_slope(forget),
                             grad_cell_state * in * tanh_slope(cell), grad_out},
                            1);
  auto grad_bias = has_bias ? grad_gates.sum(0) : Tensor();
  return {std::move(grad_gates), grad_cell_state * forget, std::move(grad_bias)};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const auto from_input = biased(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = biased(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = (from_input[0] + from_hidden[0]).sigmoid(), update = (from_input[1] + from_hidden[1]).sigmoid();
  const auto fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  auto hy = fresh + update * (hx - fresh);
  return {std::move(hy), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  const auto kept = workspace.chunk(5, 1);
  const auto &reset = kept[0], &update = kept[1], &fresh = kept[2], &hx = kept[3], &hidden = kept[4];
  const auto grad_fresh = grad_hy * (1 - update) * tanh_slope(fresh);
  const auto grad_update = grad_hy * (hx - fresh) * sigmoid_slope(update);
  const auto grad_reset = grad_fresh * hidden * sigmoid_slope(reset);
  auto grad_input_gates = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  auto grad_hidden_gates = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  auto grad_input_bias = has_bias ? grad_input_gates.sum(0) : Tensor();
  auto grad_hidden_bias = has_bias ? grad_hidden_gates.sum(0) : Tensor();
  return {std::move(grad_input_gates), std::move(grad_hidden_gates), grad_hy * update, std::move(grad_input_bias),
          std::move(grad_hidden_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace vnpu
