// core/zstd.h: Zstandard behind values that own their memory; every failure is an exception with its reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "vendor/zstd/zstd.h"

namespace millstream {

struct ZstdError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

inline std::size_t zstd_checked(std::size_t result) {
  if (ZSTD_isError(result)) throw ZstdError(ZSTD_getErrorName(result));
  return result;
}

struct ZstdFree {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace detail

// One frame that holds `data`, with a checksum.
class ZstdCompressor {
 public:
  explicit ZstdCompressor(int level) : context_(ZSTD_createCCtx()) {
    if (!context_) throw std::bad_alloc();
    if (level < ZSTD_minCLevel() || level > ZSTD_maxCLevel())
      throw std::invalid_argument("zstd: level " + std::to_string(level) + " is outside " +
                                  std::to_string(ZSTD_minCLevel()) + ".." + std::to_string(ZSTD_maxCLevel()));
    detail::zstd_checked(ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, level));
    detail::zstd_checked(ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1));
  }

  // The bytes stay valid until the next call.
  std::span<const std::byte> operator()(std::span<const std::byte> data) {
    out_.resize(ZSTD_compressBound(data.size()));
    const auto size =
        detail::zstd_checked(ZSTD_compress2(context_.get(), out_.data(), out_.size(), data.data(), data.size()));
    return {out_.data(), size};
  }

 private:
  std::unique_ptr<ZSTD_CCtx, detail::ZstdFree> context_;
  std::vector<std::byte> out_;
};

// The most bytes that a frame of so many bytes of content has.
inline std::size_t zstd_bound(std::size_t content_bytes) { return ZSTD_compressBound(content_bytes); }

// The bytes of the frame at the start of `data`, by its headers; nothing if it is cut, or no frame.
inline std::optional<std::size_t> zstd_frame_bytes(std::span<const std::byte> data) {
  const auto size = ZSTD_findFrameCompressedSize(data.data(), data.size());
  if (ZSTD_isError(size)) return std::nullopt;
  return size;
}

// The size that a frame says it has when decoded, if it says so.
inline std::optional<std::uint64_t> zstd_content_size(std::span<const std::byte> frame) {
  const auto size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_ERROR) throw ZstdError("this is not a zstd frame");
  if (size == ZSTD_CONTENTSIZE_UNKNOWN) return std::nullopt;
  return size;
}

// Decodes frames of ours into memory of exactly their size. Their header is as the compressor writes it, to the bit.
class ZstdDecompressor {
 public:
  ZstdDecompressor() : context_(ZSTD_createDCtx()) {
    if (!context_) throw std::bad_alloc();
  }

  void operator()(std::span<const std::byte> frame, std::span<std::byte> out) {
    if (zstd_content_size(frame) != out.size())
      throw ZstdError("the frame holds another number of bytes than was said");
    if ((frame[descriptor] & unused_bit) != std::byte{0}) throw ZstdError("a bit is set that no writer sets");
    detail::zstd_checked(ZSTD_decompressDCtx(context_.get(), out.data(), out.size(), frame.data(), frame.size()));
  }

  // What it takes besides its arguments.
  std::size_t bytes() const { return ZSTD_sizeof_DCtx(context_.get()); }

 private:
  static constexpr std::size_t descriptor = 4;  // where it lies in a frame, behind the magic number
  static constexpr std::byte unused_bit{0x10};  // zstd ignores it, and no checksum covers it
  std::unique_ptr<ZSTD_DCtx, detail::ZstdFree> context_;
};

// Decodes a stream of frames piece by piece, with a bound on the memory that a frame may ask for.
class ZstdStream {
 public:
  explicit ZstdStream(int window_log_max = 27) : context_(ZSTD_createDCtx()) {
    if (!context_) throw std::bad_alloc();
    detail::zstd_checked(ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, window_log_max));
  }

  struct Step {
    std::size_t consumed;
    std::size_t produced;
  };

  // Decodes from `in` into `out` until one of them is used up.
  Step operator()(std::span<const std::byte> in, std::span<std::byte> out) {
    ZSTD_inBuffer source{in.data(), in.size(), 0};
    ZSTD_outBuffer target{out.data(), out.size(), 0};
    while (target.pos < target.size) {
      const auto before = source.pos + target.pos;
      const auto left = detail::zstd_checked(ZSTD_decompressStream(context_.get(), &target, &source));
      if (source.pos + target.pos == before) break;
      between_frames_ = left == 0;
      if (between_frames_ && source.pos == source.size) break;
    }
    return {source.pos, target.pos};
  }

  // Whether everything so far was whole frames: a stream that ends elsewhere was cut.
  bool between_frames() const { return between_frames_; }

 private:
  std::unique_ptr<ZSTD_DCtx, detail::ZstdFree> context_;
  bool between_frames_ = true;
};

}  // namespace millstream
