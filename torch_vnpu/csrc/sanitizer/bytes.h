// Which bytes a strided tensor touches, exactly.
#pragma once
#include <cstdint>
#include <vector>

namespace vnpu::sanitizer {

// `run` bytes at start + i1*stride1 + i2*stride2 …, where 0 <= ik < countk. Dense where there are no steps.
struct Bytes {
  struct Step {
    uint64_t stride, count;  // stride > run, count > 1; ascending strides
    bool operator==(const Step&) const = default;
  };
  uint64_t start = 0, run = 0;
  std::vector<Step> steps;

  uint64_t end() const;  // one past the last byte
  bool operator==(const Bytes&) const = default;
};

// Sizes and strides in elements. No bytes (run 0) where a size is 0.
Bytes bytes_of(uint64_t start, uint64_t itemsize, const int64_t* sizes, const int64_t* strides, uint32_t dims);
// Whether some byte is in both.
bool overlap(const Bytes& one, const Bytes& other);
// Whether every byte of `part` is in `whole`. False where that would take long to tell, too.
bool covers(const Bytes& whole, const Bytes& part);

}  // namespace vnpu::sanitizer
