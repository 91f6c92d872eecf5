// core/store/zstd.h: Zstandard behind values that own their memory; every failure is an exception with its reason.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/store/zstd_library.h"

namespace millstream {

struct ZstdError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

inline std::size_t zstd_checked(std::size_t result) {
  if (zstd().is_error(result)) throw ZstdError(zstd().get_error_name(result));
  return result;
}

struct ZstdFree {
  void operator()(ZstdPacker* context) const { zstd().free_packer(context); }
  void operator()(ZstdUnpacker* context) const { zstd().free_unpacker(context); }
};

// Libraries may decode the frames of versions before 1.0 too, by code that few look after. They are not given any.
inline constexpr std::array magic{std::byte{0x28}, std::byte{0xB5}, std::byte{0x2F}, std::byte{0xFD}};

inline bool is_zstd_frame(std::span<const std::byte> data) {
  return data.size() > magic.size() && std::ranges::equal(data.first(magic.size()), magic);
}

}  // namespace detail

// One frame that holds `data`, with a checksum.
class ZstdCompressor {
 public:
  explicit ZstdCompressor(int level) : context_(zstd().create_packer()) {
    if (!context_) throw std::bad_alloc();
    const auto least = zstd().min_level(), most = zstd().max_level();
    if (level < least || level > most)
      throw std::invalid_argument("zstd: level " + std::to_string(level) + " is outside " + std::to_string(least) + ".." +
                                  std::to_string(most));
    detail::zstd_checked(zstd().set_packer(context_.get(), zstd_compression_level, level));
    detail::zstd_checked(zstd().set_packer(context_.get(), zstd_checksum_flag, 1));
  }

  // The bytes stay valid until the next call.
  std::span<const std::byte> operator()(std::span<const std::byte> data) {
    out_.resize(zstd().compress_bound(data.size()));
    const auto size =
        detail::zstd_checked(zstd().compress(context_.get(), out_.data(), out_.size(), data.data(), data.size()));
    return {out_.data(), size};
  }

 private:
  std::unique_ptr<ZstdPacker, detail::ZstdFree> context_;
  std::vector<std::byte> out_;
};

// The most bytes that a frame of so many bytes of content has.
inline std::size_t zstd_bound(std::size_t content_bytes) { return zstd().compress_bound(content_bytes); }

// The bytes of the frame at the start of `data`, by its headers; nothing if it is cut, or no frame.
inline std::optional<std::size_t> zstd_frame_bytes(std::span<const std::byte> data) {
  if (!detail::is_zstd_frame(data)) return std::nullopt;
  const auto size = zstd().frame_size(data.data(), data.size());
  if (zstd().is_error(size)) return std::nullopt;
  return size;
}

// The size that a frame says it has when decoded, if it says so.
inline std::optional<std::uint64_t> zstd_content_size(std::span<const std::byte> frame) {
  const auto size = detail::is_zstd_frame(frame) ? zstd().content_size(frame.data(), frame.size()) : zstd_size_error;
  if (size == zstd_size_error) throw ZstdError("this is not a zstd frame");
  if (size == zstd_size_unknown) return std::nullopt;
  return size;
}

// Decodes frames of ours into memory of exactly their size. Their header is as the compressor writes it, to the bit.
class ZstdDecompressor {
 public:
  ZstdDecompressor() : context_(zstd().create_unpacker()) {
    if (!context_) throw std::bad_alloc();
  }

  void operator()(std::span<const std::byte> frame, std::span<std::byte> out) {
    if (zstd_content_size(frame) != out.size())
      throw ZstdError("the frame holds another number of bytes than was said");
    if ((frame[descriptor] & unused_bit) != std::byte{0}) throw ZstdError("a bit is set that no writer sets");
    if (zstd_frame_bytes(frame) != frame.size()) throw ZstdError("the frame is cut, or something follows it");
    detail::zstd_checked(zstd().decompress(context_.get(), out.data(), out.size(), frame.data(), frame.size()));
  }

  // What it takes besides its arguments.
  std::size_t bytes() const { return zstd().size_of_unpacker(context_.get()); }

 private:
  static constexpr std::size_t descriptor = 4;  // where it lies in a frame, behind the magic number
  static constexpr std::byte unused_bit{0x10};  // zstd ignores it, and no checksum covers it
  std::unique_ptr<ZstdUnpacker, detail::ZstdFree> context_;
};

// Decodes a stream of frames piece by piece, with a bound on the memory that a frame may ask for.
class ZstdStream {
 public:
  explicit ZstdStream(int window_log_max = 27) : context_(zstd().create_unpacker()) {
    if (!context_) throw std::bad_alloc();
    detail::zstd_checked(zstd().set_unpacker(context_.get(), zstd_window_log_max, window_log_max));
  }

  struct Step {
    std::size_t consumed;
    std::size_t produced;
  };

  // Decodes from `in` into `out` until one of them is used up.
  Step operator()(std::span<const std::byte> in, std::span<std::byte> out) {
    ZstdIn source{in.data(), in.size(), 0};
    ZstdOut target{out.data(), out.size(), 0};
    while (target.place < target.size) {
      const auto from = source.place, before = source.place + target.place;
      check_start(in.subspan(from));
      const auto left = detail::zstd_checked(zstd().decompress_stream(context_.get(), &target, &source));
      if (source.place + target.place == before) break;
      between_frames_ = left == 0;
      checked_ = between_frames_ ? 0 : std::min(detail::magic.size(), checked_ + source.place - from);
      if (between_frames_ && source.place == source.size) break;
    }
    return {source.place, target.place};
  }

  // Whether everything so far was whole frames: a stream that ends elsewhere was cut.
  bool between_frames() const { return between_frames_; }

 private:
  std::unique_ptr<ZstdUnpacker, detail::ZstdFree> context_;
  bool between_frames_ = true;
  std::size_t checked_ = 0;  // bytes of the frame's magic number that were seen, and are right
  bool skippable_ = false;

  // A frame begins as all do, or as those that hold something else than content.
  void check_start(std::span<const std::byte> in) {
    static constexpr std::array other{std::byte{0x50}, std::byte{0x2A}, std::byte{0x4D}, std::byte{0x18}};
    const auto few = std::min(in.size(), detail::magic.size() - checked_);
    for (std::size_t i = 0; i < few; ++i) {
      const auto place = checked_ + i;
      if (place == 0) skippable_ = (in[0] & std::byte{0xF0}) == other[0];
      const auto right = skippable_ ? place == 0 || in[i] == other[place] : in[i] == detail::magic[place];
      if (!right) throw ZstdError("this is not a zstd frame");
    }
  }
};

}  // namespace millstream
