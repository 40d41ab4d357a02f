#include "bytes.h"

#include <algorithm>
#include <numeric>

namespace vnpu::sanitizer {
namespace {

constexpr int kWork = 1 << 18;  // halvings; sets that need more are taken for disjoint

// Runs repeat with every stride, so modulo a common divisor of all strides there is one run of each set.
bool disjoint_modulo(const Bytes& one, const Bytes& other) {
  uint64_t period = 0;
  for (const auto* set : {&one, &other})
    for (const auto& step : set->steps) period = std::gcd(period, step.stride);
  if (one.run + other.run > period) return false;
  const uint64_t distance = (other.start % period + period - one.start % period) % period;
  return distance >= one.run && distance + other.run <= period;
}

Bytes half(const Bytes& set, bool upper) {
  Bytes part = set;
  auto& step = part.steps.back();
  const uint64_t low = step.count / 2;
  if (upper) {
    part.start += low * step.stride;
    step.count -= low;
  } else {
    step.count = low;
  }
  if (step.count == 1) part.steps.pop_back();
  return part;
}

bool search(const Bytes& one, const Bytes& other, int& work) {
  if (one.start >= other.end() || other.start >= one.end() || --work < 0) return false;
  if (one.steps.empty() && other.steps.empty()) return true;
  if (disjoint_modulo(one, other)) return false;
  const bool split_one = other.steps.empty() || (!one.steps.empty() && one.end() - one.start >= other.end() - other.start);
  const auto& large = split_one ? one : other;
  const auto& small = split_one ? other : one;
  return search(half(large, false), small, work) || search(half(large, true), small, work);
}

}  // namespace

uint64_t Bytes::end() const {
  uint64_t last = start + run;
  for (const auto& step : steps) last += step.stride * (step.count - 1);
  return last;
}

Bytes bytes_of(uint64_t start, uint64_t itemsize, const int64_t* sizes, const int64_t* strides, uint32_t dims) {
  Bytes bytes{start, itemsize, {}};
  uint64_t expected = itemsize;  // the usual case: contiguous, from the last dimension on
  bool contiguous = true;
  for (uint32_t d = dims; d-- > 0;) {
    if (sizes[d] == 0) return {start, 0, {}};
    if (sizes[d] == 1) continue;
    contiguous = contiguous && static_cast<uint64_t>(strides[d]) * itemsize == expected;
    expected *= static_cast<uint64_t>(sizes[d]);
  }
  if (contiguous) {
    bytes.run = expected;
    return bytes;
  }
  for (uint32_t d = 0; d < dims; ++d)
    if (sizes[d] > 1 && strides[d] != 0)
      bytes.steps.push_back({static_cast<uint64_t>(strides[d]) * itemsize, static_cast<uint64_t>(sizes[d])});
  std::sort(bytes.steps.begin(), bytes.steps.end(), [](const auto& a, const auto& b) { return a.stride < b.stride; });
  size_t joined = 0;
  while (joined < bytes.steps.size() && bytes.steps[joined].stride <= bytes.run) {
    bytes.run += bytes.steps[joined].stride * (bytes.steps[joined].count - 1);
    ++joined;
  }
  bytes.steps.erase(bytes.steps.begin(), bytes.steps.begin() + static_cast<std::ptrdiff_t>(joined));
  return bytes;
}

bool overlap(const Bytes& one, const Bytes& other) {
  if (!one.run || !other.run) return false;
  int work = kWork;
  return search(one, other, work);
}

bool covers(const Bytes& whole, const Bytes& part) {
  if (!part.run) return true;
  if (whole.steps.empty()) return whole.start <= part.start && part.end() <= whole.end();
  return whole == part;
}

}  // namespace vnpu::sanitizer
