// core/kernels/kernels.cpp: each loop is compiled for plain x86-64, AVX2 and AVX-512; the loader picks one when the module is opened.
#include "core/kernels/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

// Writing past the caches is said in intrinsics only, so the versions below are written out and chosen by hand.
namespace {

template <typename Real>
constexpr Real one = std::is_same_v<Real, float> ? Real{1} : Real{0x3C00};

template <typename Real>
constexpr auto files_of_bytes = [] {
  std::array<std::array<Real, 8>, 256> table{};
  for (std::size_t byte = 0; byte < 256; ++byte)
    for (std::size_t file = 0; file < 8; ++file) table[byte][file] = byte >> (7 - file) & 1 ? one<Real> : Real{0};
  return table;
}();

template <typename Real>
void unpack_plainly(const std::uint64_t* boards, std::size_t count, Real* out) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(boards);
  for (std::size_t i = 0; i < count * 8; ++i) std::memcpy(out + i * 8, files_of_bytes<Real>[bytes[i]].data(), 8 * sizeof(Real));
}

#if defined(__x86_64__)
std::size_t bytes_to_line(const void* at) { return -std::bit_cast<std::uintptr_t>(at) % 64; }

// The bits of each byte turned around, as masks begin at the lowest.
std::uint64_t turned(std::uint64_t bits) {
  bits = (bits >> 1 & 0x5555555555555555) | (bits & 0x5555555555555555) << 1;
  bits = (bits >> 2 & 0x3333333333333333) | (bits & 0x3333333333333333) << 2;
  return (bits >> 4 & 0x0F0F0F0F0F0F0F0F) | (bits & 0x0F0F0F0F0F0F0F0F) << 4;
}

__attribute__((target("avx2"))) void unpack_32(const std::uint64_t* boards, std::size_t count, float* out) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(boards);
  for (std::size_t i = 0; i < count * 8; ++i)
    _mm256_stream_ps(out + i * 8, _mm256_loadu_ps(files_of_bytes<float>[bytes[i]].data()));
}

__attribute__((target("avx512f"))) void unpack_64(const std::uint64_t* boards, std::size_t count, float* out) {
  const auto ones = _mm512_set1_ps(one<float>);
  for (std::size_t i = 0; i < count; ++i) {
    auto bits = turned(boards[i]);
    for (int part = 0; part < 4; ++part, bits >>= 16, out += 16)
      _mm512_stream_ps(out, _mm512_maskz_mov_ps(static_cast<__mmask16>(bits), ones));
  }
}

__attribute__((target("avx512bw"))) void unpack_64(const std::uint64_t* boards, std::size_t count, std::uint16_t* out) {
  const auto ones = _mm512_set1_epi16(static_cast<short>(one<std::uint16_t>));
  for (std::size_t i = 0; i < count; ++i) {
    auto bits = turned(boards[i]);
    for (int part = 0; part < 2; ++part, bits >>= 32, out += 32)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(out), _mm512_maskz_mov_epi16(static_cast<__mmask32>(bits), ones));
  }
}

__attribute__((target("avx2"))) void stream_32(const std::byte* in, std::size_t bytes, std::byte* out) {
  for (std::size_t i = 0; i < bytes; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i)));
}

__attribute__((target("avx512f"))) void stream_64(const std::byte* in, std::size_t bytes, std::byte* out) {
  for (std::size_t i = 0; i < bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), _mm512_loadu_si512(in + i));
}

const bool has_32 = __builtin_cpu_supports("avx2"), has_64 = __builtin_cpu_supports("avx512bw");
#endif

}  // namespace

void unpack_boards(const std::uint64_t* boards, std::size_t count, float* out) {
#if defined(__x86_64__)
  if (has_64 && bytes_to_line(out) == 0) return unpack_64(boards, count, out);
  if (has_32 && bytes_to_line(out) == 0) return unpack_32(boards, count, out);
#endif
  unpack_plainly(boards, count, out);
}

void unpack_boards(const std::uint64_t* boards, std::size_t count, std::uint16_t* out) {
#if defined(__x86_64__)
  if (has_64 && bytes_to_line(out) == 0) return unpack_64(boards, count, out);
#endif
  unpack_plainly(boards, count, out);
}

void copy_past_caches(const void* in, std::size_t bytes, void* out) {
#if defined(__x86_64__)
  const auto before = bytes_to_line(out);
  if (has_32 && before < bytes) {
    const auto lines = (bytes - before) / 64 * 64;
    const auto* from = static_cast<const std::byte*>(in);
    auto* to = static_cast<std::byte*>(out);
    std::memcpy(to, from, before);
    (has_64 ? stream_64 : stream_32)(from + before, lines, to + before);
    std::memcpy(to + before + lines, from + before + lines, bytes - before - lines);
    return;
  }
#endif
  std::memcpy(out, in, bytes);
}

void finish_past_caches() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace millstream
