// core/kernels.cpp: each loop is compiled for plain x86-64, AVX2 and AVX-512; the loader picks one when the module is opened.
#include "core/kernels.h"

#include <algorithm>

// Sanitizers cannot run code that resolves itself before they are up; other processors have one version only.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define MILLSTREAM_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MILLSTREAM_VECTORISED
#endif

namespace millstream {

MILLSTREAM_VECTORISED void encrypt_all(const Feistel& feistel, std::uint64_t* values, std::size_t count) {
  const Feistel local = feistel;  // a copy cannot alias `values`, so the keys stay in registers
  for (std::size_t i = 0; i < count; ++i) values[i] = local.encrypt<Feistel::wide_rounds>(values[i]);
}

MILLSTREAM_VECTORISED void decrypt_all(const Feistel& feistel, std::uint64_t* values, std::size_t count) {
  const Feistel local = feistel;
  for (std::size_t i = 0; i < count; ++i) values[i] = local.decrypt<Feistel::wide_rounds>(values[i]);
}

MILLSTREAM_VECTORISED void encrypt_narrow(const Feistel& feistel, std::uint64_t* values, std::size_t count) {
  const Feistel local = feistel;
  for (std::size_t round = 0; round < Feistel::narrow_rounds; round += 2)  // all of them at once fit into no loop of vectors
    for (std::size_t i = 0; i < count; ++i) values[i] = local.encrypt(values[i], round, round + 2);
}

#define MILLSTREAM_WIDEN(In, Out)                                                                               \
  MILLSTREAM_VECTORISED void widen(const In* __restrict in, Out* __restrict out, std::size_t count) {           \
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<Out>(in[i]);                                   \
  }
MILLSTREAM_WIDEN(std::uint16_t, std::int64_t)
MILLSTREAM_WIDEN(std::uint16_t, std::int32_t)
MILLSTREAM_WIDEN(std::uint32_t, std::int64_t)
MILLSTREAM_WIDEN(std::uint32_t, std::int32_t)
MILLSTREAM_WIDEN(std::int32_t, std::int64_t)
MILLSTREAM_WIDEN(std::int32_t, std::int32_t)
#undef MILLSTREAM_WIDEN

#define MILLSTREAM_COUNT_UP(Out)                                                      \
  MILLSTREAM_VECTORISED void count_up(Out* out, std::size_t count) {                  \
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<Out>(i);             \
  }
MILLSTREAM_COUNT_UP(std::int64_t)
MILLSTREAM_COUNT_UP(std::int32_t)
#undef MILLSTREAM_COUNT_UP

#define MILLSTREAM_WEIGHTED(Out)                                                                                \
  MILLSTREAM_VECTORISED void widen(const Weighted* __restrict in, Out* __restrict out, std::size_t count) {     \
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<Out>(in[i].id());                              \
  }                                                                                                             \
  MILLSTREAM_VECTORISED TargetFacts write_targets(const Weighted* __restrict in, Out* __restrict out,           \
                                                  std::size_t count) {                                          \
    std::uint32_t weighing = 0, fractional = 0;                                                                 \
    for (std::size_t i = 0; i < count; ++i) {                                                                   \
      const std::uint32_t code = in[i].code(), weighs = code != 0;                                              \
      weighing += weighs;                                                                                       \
      fractional |= weighs & static_cast<std::uint32_t>(code != Weighted::whole);                               \
      out[i] = weighs != 0 ? static_cast<Out>(in[i].id()) : Out{no_loss};                                       \
    }                                                                                                           \
    return {weighing, fractional != 0};                                                                         \
  }
MILLSTREAM_WEIGHTED(std::int64_t)
MILLSTREAM_WEIGHTED(std::int32_t)
#undef MILLSTREAM_WEIGHTED

#define MILLSTREAM_MASKED(Out)                                                                                        \
  MILLSTREAM_VECTORISED TargetFacts write_targets(const std::uint32_t* __restrict in, const std::uint8_t* __restrict mask, \
                                                  Out* __restrict out, std::size_t count) {                           \
    std::uint32_t learned = 0;                                                                                        \
    for (std::size_t i = 0; i < count; ++i) {                                                                         \
      const std::uint32_t is_learned = mask[i] != 0;                                                                  \
      learned += is_learned;                                                                                          \
      out[i] = is_learned != 0 ? static_cast<Out>(in[i]) : Out{no_loss};                                              \
    }                                                                                                                 \
    return {learned, false};                                                                                          \
  }
MILLSTREAM_MASKED(std::int64_t)
MILLSTREAM_MASKED(std::int32_t)
#undef MILLSTREAM_MASKED

MILLSTREAM_VECTORISED void keep_where(const std::uint8_t* __restrict mask, const float* __restrict in, float* __restrict out,
                                      std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = mask[i] != 0 ? in[i] : 0.0F;
}

MILLSTREAM_VECTORISED void put_where(const std::uint8_t* __restrict mask, float value, float* __restrict out,
                                     std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = mask[i] != 0 ? value : 0.0F;
}

MILLSTREAM_VECTORISED bool said_outside(const std::uint8_t* __restrict mask, const float* __restrict in, std::size_t count) {
  std::uint32_t said = 0;
  for (std::size_t i = 0; i < count; ++i) said |= static_cast<std::uint32_t>(mask[i] == 0 && in[i] != 0.0F);
  return said != 0;
}

#define MILLSTREAM_LARGEST(In)                                                                       \
  MILLSTREAM_VECTORISED std::uint32_t largest(const In* in, std::size_t count) {                     \
    std::uint32_t top = 0;                                                                           \
    for (std::size_t i = 0; i < count; ++i) top = std::max(top, static_cast<std::uint32_t>(in[i]));  \
    return top;                                                                                      \
  }
MILLSTREAM_LARGEST(std::uint16_t)
MILLSTREAM_LARGEST(std::uint32_t)
MILLSTREAM_LARGEST(std::int32_t)
#undef MILLSTREAM_LARGEST

MILLSTREAM_VECTORISED std::uint32_t largest(const Weighted* in, std::size_t count) {
  std::uint32_t top = 0;
  for (std::size_t i = 0; i < count; ++i) top = std::max(top, in[i].id());
  return top;
}

MILLSTREAM_VECTORISED void least_hashes(const std::uint32_t* values, std::size_t count,
                                        const std::uint32_t* __restrict factors,
                                        const std::uint32_t* __restrict offsets, std::uint32_t* __restrict minima,
                                        std::size_t functions) {
  constexpr std::size_t step = 8;  // values per visit to `minima`, which does not fit into the registers
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    std::uint32_t x[step];
    std::copy_n(values + i, step, x);
    for (std::size_t j = 0; j < functions; ++j) {
      std::uint32_t least = minima[j];
      for (std::size_t k = 0; k < step; ++k) least = std::min(least, factors[j] * x[k] + offsets[j]);
      minima[j] = least;
    }
  }
  for (; i < count; ++i)
    for (std::size_t j = 0; j < functions; ++j) minima[j] = std::min(minima[j], factors[j] * values[i] + offsets[j]);
}

}  // namespace millstream
