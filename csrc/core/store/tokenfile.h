// core/store/tokenfile.h: the 64-byte frame at the start of .bin, .idx, .sum, .tab and .org files (docs/reference/formats.md). A frame comes
// from a file and a file may lie: parse_frame checks every field against the others and against the file's size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "core/kernels/hash.h"

namespace millstream {

// `weighted` tokens say what they weigh in the loss: an id of 24 bits, and the code of its weight above them (weights.h).
enum class Dtype : std::uint32_t { uint16 = 1, uint32 = 2, int32 = 3, weighted = 4 };

inline constexpr std::size_t frame_bytes = 64;
inline constexpr std::uint32_t format_version = 1;

inline std::size_t width(Dtype dtype) { return dtype == Dtype::uint16 ? 2 : 4; }

// 1 + the largest id that a dtype can hold.
inline std::uint64_t id_limit(Dtype dtype) {
  switch (dtype) {
    case Dtype::uint16: return std::uint64_t{1} << 16;
    case Dtype::uint32: return std::uint64_t{1} << 32;
    case Dtype::weighted: return std::uint64_t{1} << 24;
    default: return std::uint64_t{1} << 31;
  }
}

struct Frame {
  // 'T' tokens, 'Z' packed tokens, 'D' document ends, 'E' document ends and weights, 'C' checksums, 'S' shard table, 'O' origins
  char kind = 'T';
  std::uint32_t dtype = 0;
  std::uint64_t count = 0, offset = frame_bytes, bound = 0, tag = 0, documents = 0;
  std::uint32_t block = 0;  // tokens in a block of packed tokens
};

inline std::uint64_t block_count(std::uint64_t tokens, std::uint32_t block) { return tokens / block + (tokens % block != 0); }

namespace frame {

inline std::string name_of(char kind) {
  switch (kind) {
    case 'T': return "token file";
    case 'Z': return "packed token file";
    case 'D': return "document index";
    case 'E': return "weighed document index";
    case 'C': return "checksum file";
    case 'S': return "shard table";
    case 'O': return "table of origins";
    default: return "file of unknown kind";
  }
}

inline std::array<std::byte, 8> magic(char kind) {
  constexpr unsigned char bytes[] = {0x89, 'M', 'L', 'S', 0, '\r', '\n', 0x1A};
  std::array<std::byte, 8> out;
  std::memcpy(out.data(), bytes, sizeof bytes);
  out[4] = static_cast<std::byte>(kind);
  return out;
}

template <typename Word>
inline void store(std::byte* to, Word word) {
  std::memcpy(to, &word, sizeof word);
}

inline std::uint32_t check_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(xxh64(bytes.first(60)) & 0xFFFFFFFFu);
}

[[noreturn]] inline void refuse(const std::string& what) { throw std::runtime_error(what); }

// Is this one of our files, of the kind the reader expects, and finished? Who expects tokens may find them packed.
inline char check_magic(std::span<const std::byte> bytes, char expected_kind) {
  std::size_t zeros = 0;
  while (zeros < bytes.size() && bytes[zeros] == std::byte{0}) ++zeros;
  if (zeros == bytes.size()) refuse("the frame is 64 zero bytes: this file was never finished");
  const char kind = static_cast<char>(bytes[4]);
  const auto expected = magic(kind);
  if (std::memcmp(bytes.data(), expected.data(), expected.size()) != 0)
    refuse("this is not a Millstream file (the magic number is missing)");
  if (kind != expected_kind && !(kind == 'Z' && expected_kind == 'T'))
    refuse("this is a Millstream " + name_of(kind) + ", not a " + name_of(expected_kind));
  return kind;
}

inline void check_tokens(const Frame& frame) {
  if (frame.dtype < 1 || frame.dtype > 4)
    refuse("dtype code " + std::to_string(frame.dtype) + " is unknown (1 = uint16, 2 = uint32, 3 = int32, 4 = weighted)");
  if (frame.bound > id_limit(static_cast<Dtype>(frame.dtype)))
    refuse("ids below " + std::to_string(frame.bound) + " do not fit the dtype");
  if ((frame.bound == 0) != (frame.count == 0))
    refuse(std::to_string(frame.count) + " tokens with ids below " + std::to_string(frame.bound) + " cannot be");
  if (frame.count != 0 && frame.documents == 0) refuse("there are tokens but no documents");
}

inline void check_block(const Frame& frame) {
  if (frame.kind != 'Z' && frame.block != 0) refuse("the zero field of the frame is not 0");
  if (frame.kind == 'Z' && (!std::has_single_bit(frame.block) || frame.block < 16 || frame.block > 65'536))
    refuse("blocks of " + std::to_string(frame.block) + " tokens are not a power of two from 16 to 2^16");
}

inline void check_checksums(const Frame& frame) {
  if (!std::has_single_bit(frame.bound) || frame.bound < 64 || frame.bound > (std::uint64_t{1} << 30))
    refuse("blocks of " + std::to_string(frame.bound) + " bytes are not a power of two from 64 to 2^30");
}

// Do the fields agree with each other?
inline void check_fields(const Frame& frame) {
  if (frame.offset != frame_bytes) refuse("the body starts at byte " + std::to_string(frame.offset) + ", not at 64");
  check_block(frame);
  if (frame.kind == 'T' || frame.kind == 'Z') return check_tokens(frame);
  if (frame.dtype != 0) refuse("a " + name_of(frame.kind) + " has no dtype, this one says " + std::to_string(frame.dtype));
  if (frame.kind != 'S' && frame.documents != 0) refuse("the documents field of a " + name_of(frame.kind) + " must be 0");
  if (frame.kind == 'C') return check_checksums(frame);
  if (frame.count == 0 && frame.bound != 0)
    refuse("an empty " + name_of(frame.kind) + " speaks of " + std::to_string(frame.bound) + " tokens");
}

}  // namespace frame

// Bytes of one entry of the body.
inline std::size_t entry_bytes(const Frame& frame) {
  if (frame.kind == 'T') return width(static_cast<Dtype>(frame.dtype));
  switch (frame.kind) {
    case 'S': return 64;
    case 'O': return 24;
    case 'E': return 16;
    default: return 8;
  }
}

namespace frame {

// Does the file behind its frame have the size that the frame promises? By division: products could overflow. How long
// packed blocks are is known only from their table, whose last entry must agree with the size too.
inline void check_size(const Frame& frame, std::uint64_t body) {
  const auto found = "the file has " + std::to_string(body) + " bytes after its frame";
  if (frame.kind == 'Z') {
    const auto blocks = block_count(frame.count, frame.block);
    if (body / 8 < blocks || (blocks == 0 && body != 0))
      refuse("the frame promises " + std::to_string(blocks) + " packed blocks, " + found);
    return;
  }
  const auto entry = entry_bytes(frame);
  if (body % entry != 0 || body / entry != frame.count)
    refuse("the frame promises " + std::to_string(frame.count) + " entries of " + std::to_string(entry) + " bytes, " + found);
}

}  // namespace frame

// Reads the frame of a file of `file_bytes` bytes that begins with `first_bytes`. What it returns is consistent with
// that size; anything else throws std::runtime_error, which says what was found.
inline Frame parse_frame(std::span<const std::byte> first_bytes, std::uint64_t file_bytes, char expected_kind) {
  if (file_bytes == 0) frame::refuse("the file is empty");
  if (first_bytes.size() < frame_bytes || file_bytes < frame_bytes)
    frame::refuse("the file has " + std::to_string(std::min<std::uint64_t>(file_bytes, first_bytes.size())) +
                  " bytes, its frame alone needs 64");
  const auto bytes = first_bytes.first(frame_bytes);
  const char kind = frame::check_magic(bytes, expected_kind);
  const std::byte* const from = bytes.data();
  if (const auto version = xxh::load<std::uint32_t>(from + 8); version != format_version)
    frame::refuse("format version " + std::to_string(version) + " cannot be read; this Millstream reads version 1");
  if (xxh::load<std::uint32_t>(from + 60) != frame::check_of(bytes)) frame::refuse("the frame is damaged (its check fails)");
  const Frame parsed{kind,
                     xxh::load<std::uint32_t>(from + 12),
                     xxh::load<std::uint64_t>(from + 16),
                     xxh::load<std::uint64_t>(from + 24),
                     xxh::load<std::uint64_t>(from + 32),
                     xxh::load<std::uint64_t>(from + 40),
                     xxh::load<std::uint64_t>(from + 48),
                     xxh::load<std::uint32_t>(from + 56)};
  frame::check_fields(parsed);
  frame::check_size(parsed, file_bytes - frame_bytes);
  return parsed;
}

// The 64 bytes that parse_frame reads back.
inline std::array<std::byte, frame_bytes> encode_frame(const Frame& frame) {
  frame::check_fields(frame);
  std::array<std::byte, frame_bytes> out{};
  const auto magic = frame::magic(frame.kind);
  std::memcpy(out.data(), magic.data(), magic.size());
  frame::store(out.data() + 8, format_version);
  frame::store(out.data() + 12, frame.dtype);
  frame::store(out.data() + 16, frame.count);
  frame::store(out.data() + 24, frame.offset);
  frame::store(out.data() + 32, frame.bound);
  frame::store(out.data() + 40, frame.tag);
  frame::store(out.data() + 48, frame.documents);
  frame::store(out.data() + 56, frame.block);
  frame::store(out.data() + 60, frame::check_of(out));
  return out;
}

}  // namespace millstream
