// core/store/block_cache.h: the blocks of packed shards that a thread decoded last. Neighbours in file order share them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/memory/guard.h"
#include "core/store/compressed.h"
#include "core/store/shards.h"

namespace millstream {

class DecodedBlocks {
 public:
  // What it may grow to with blocks of so many bytes.
  static std::size_t bytes(std::size_t block_bytes) {
    if (block_bytes == 0) return 0;  // a machine that has no zstd reads plain stores
    static const std::size_t decoder_bytes = ZstdDecompressor().bytes();
    return most * (block_bytes + sizeof(Block)) + zstd_bound(block_bytes) + decoder_bytes;
  }

  // Copies tokens [start, start + count) of a packed shard, which has them.
  void copy(const Shards& store, std::size_t number, const Shards::Shard& shard, std::uint64_t start, std::uint64_t count,
            std::byte* to) {
    const auto& packed = shard.packed;
    while (count > 0) {
      const auto inside = start % packed.block_tokens;
      const auto take = std::min<std::uint64_t>(count, packed.block_tokens - inside);
      const auto& tokens = find(store, number, packed, start / packed.block_tokens);
      std::memcpy(to, tokens.data() + inside * packed.token_width, take * packed.token_width);
      to += take * packed.token_width;
      start += take;
      count -= take;
    }
  }

 private:
  static constexpr std::size_t most = 16;

  // A shard may be let go and mapped again, from a file that was packed anew meanwhile: its tokens are the same, its blocks
  // perhaps not.
  struct Block {
    const Shards* store = nullptr;
    std::size_t shard = 0;
    std::uint64_t number = 0, last_use = 0;
    std::uint32_t block_tokens = 0;
    std::vector<std::byte> tokens;

    bool is(const Shards& of, std::size_t in, const PackedTokens& packed, std::uint64_t block) const {
      return store == &of && shard == in && number == block && block_tokens == packed.block_tokens;
    }
  };

  const std::vector<std::byte>& find(const Shards& store, std::size_t shard, const PackedTokens& packed, std::uint64_t number) {
    ++uses_;
    auto found = std::ranges::find_if(blocks_, [&](const Block& block) { return block.is(store, shard, packed, number); });
    if (found == blocks_.end()) {
      if (blocks_.empty()) blocks_.reserve(most);
      if (blocks_.size() < most) found = blocks_.emplace(blocks_.end());
      else found = std::ranges::min_element(blocks_, {}, &Block::last_use);
      found->store = nullptr;  // until it is whole
      decode(store, shard, packed, number, found->tokens);
      found->store = &store;
      found->shard = shard;
      found->number = number;
      found->block_tokens = packed.block_tokens;
    }
    found->last_use = uses_;
    return found->tokens;
  }

  // Decodes a copy: the file may change, or vanish, under the decoder.
  void decode(const Shards& store, std::size_t shard, const PackedTokens& packed, std::uint64_t number,
              std::vector<std::byte>& tokens) {
    const auto where = [&] { return store.path(shard) + ": block " + std::to_string(number); };
    std::uint64_t start = 0, stop = 0;
    if (!survives([&] { start = packed.start(number), stop = packed.end(number); })) throw store.shrunk(shard);
    if (!packed.believable(number, start, stop)) throw DataError(where() + " does not lie where the table says");
    frame_.resize(static_cast<std::size_t>(stop - start));
    const auto* const from = packed.file + start;
    if (!survives([&] { std::memcpy(frame_.data(), from, frame_.size()); })) throw store.shrunk(shard);
    tokens.resize(packed.decoded_bytes(number));
    if (!decoder_) decoder_ = std::make_unique<ZstdDecompressor>();
    try {
      (*decoder_)(frame_, tokens);
    } catch (const ZstdError& error) {
      throw DataError(where() + " (bytes " + std::to_string(start) + " to " + std::to_string(stop) +
                      ") is damaged: " + error.what());
    }
  }

  std::vector<Block> blocks_;
  std::uint64_t uses_ = 0;
  std::vector<std::byte> frame_;
  std::unique_ptr<ZstdDecompressor> decoder_;
};

}  // namespace millstream
