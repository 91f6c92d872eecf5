// core/store/compressed.h: tokens in blocks, each a zstd frame of its own, and where the blocks lie in their file (docs/reference/formats.md).
//
// Any block is found by one look at the table at the file's end, and decoded without the others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/store/tokenfile.h"
#include "core/store/zstd.h"

namespace millstream {

// The blocks of a file that is mapped elsewhere.
struct PackedTokens {
  const std::byte* file = nullptr;
  std::uint64_t file_bytes = 0, tokens = 0;
  std::uint32_t block_tokens = 0;
  std::size_t token_width = 2;

  std::uint64_t blocks() const { return block_count(tokens, block_tokens); }
  std::uint64_t table_start() const { return file_bytes - blocks() * sizeof(std::uint64_t); }
  std::size_t block_bytes() const { return block_tokens * token_width; }

  // Bytes of a block when it is decoded; only the last may be short.
  std::size_t decoded_bytes(std::uint64_t block) const {
    return static_cast<std::size_t>(std::min<std::uint64_t>(block_tokens, tokens - block * block_tokens)) * token_width;
  }

  // Where the block ends in the file, as the table says: to be read under a guard, and not to be believed.
  std::uint64_t end(std::uint64_t block) const {
    return xxh::load<std::uint64_t>(file + table_start() + block * sizeof(std::uint64_t));
  }
  std::uint64_t start(std::uint64_t block) const { return block == 0 ? frame_bytes : end(block - 1); }

  bool believable(std::uint64_t block, std::uint64_t from, std::uint64_t to) const {
    return from >= frame_bytes && from < to && to <= table_start() && to - from <= zstd_bound(decoded_bytes(block));
  }
};

// Packs `data` block by block; `ends[i]` is where block i ends in the result.
inline std::vector<std::byte> pack_blocks(std::span<const std::byte> data, std::size_t block_bytes, int level,
                                          std::span<std::uint64_t> ends) {
  if (block_bytes == 0 || ends.size() != (data.size() + block_bytes - 1) / block_bytes)
    throw std::invalid_argument("one end per block");
  ZstdCompressor compressor(level);
  std::vector<std::byte> packed;
  for (auto& end : ends) {
    const auto frame = compressor(data.first(std::min(block_bytes, data.size())));
    packed.insert(packed.end(), frame.begin(), frame.end());
    data = data.subspan(std::min(block_bytes, data.size()));
    end = packed.size();
  }
  return packed;
}

struct Unpacked {
  std::size_t blocks = 0;  // decoded, from the first on
  std::string reason;      // why the next one could not be
};

// Decodes blocks that lie end to end in `packed` until one is damaged. `out` has exactly their size; only the last is short.
inline Unpacked unpack_blocks(std::span<const std::byte> packed, std::span<const std::uint64_t> ends, std::size_t block_bytes,
                              std::span<std::byte> out) {
  ZstdDecompressor decompressor;
  std::uint64_t start = 0;
  for (std::size_t block = 0; block < ends.size(); ++block) {
    const auto stop = ends[block];
    if (stop <= start || stop > packed.size()) return {block, "it does not lie where the table says"};
    const auto room = out.first(std::min(block_bytes, out.size()));
    try {
      decompressor(packed.subspan(start, stop - start), room);
    } catch (const ZstdError& error) {
      return {block, error.what()};
    }
    out = out.subspan(room.size());
    start = stop;
  }
  if (!out.empty()) throw std::invalid_argument("room for more blocks than there are");
  return {ends.size(), ""};
}

// Finds the frames at the start of `packed` by their headers, as many as there is room for; tells how many are whole.
inline std::size_t find_frames(std::span<const std::byte> packed, std::span<std::uint64_t> ends) {
  std::uint64_t place = 0;
  for (std::size_t found = 0; found < ends.size(); ++found) {
    const auto bytes = zstd_frame_bytes(packed.subspan(place));
    if (!bytes) return found;
    ends[found] = place += *bytes;
  }
  return ends.size();
}

}  // namespace millstream
