// core/kernels/hash.h: XXH64, the checksum of every block, frame and shard. Written from the public description of the
// algorithm; pinned by known values, so that a store written today verifies on any machine tomorrow.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>

namespace millstream {

static_assert(std::endian::native == std::endian::little, "bodies are mapped and hashed as little-endian words");

namespace xxh {

inline constexpr std::uint64_t prime1 = 0x9E3779B185EBCA87u;
inline constexpr std::uint64_t prime2 = 0xC2B2AE3D27D4EB4Fu;
inline constexpr std::uint64_t prime3 = 0x165667B19E3779F9u;
inline constexpr std::uint64_t prime4 = 0x85EBCA77C2B2AE63u;
inline constexpr std::uint64_t prime5 = 0x27D4EB2F165667C5u;

template <typename Word>
inline Word load(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);  // the bytes may lie at any address
  return word;
}

inline std::uint64_t round(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * prime2, 31) * prime1;
}

inline std::uint64_t merge(std::uint64_t hash, std::uint64_t lane) {
  return (hash ^ round(0, lane)) * prime1 + prime4;
}

inline constexpr std::size_t stripe = 32;  // bytes

// Four lanes, each with its own word of every stripe.
struct Lanes {
  explicit Lanes(std::uint64_t seed) : lane{seed + prime1 + prime2, seed + prime2, seed, seed - prime1} {}

  // Takes whole stripes from the front of `data`.
  void take(std::span<const std::byte>& data) {
    auto own = lane;  // in registers: the bytes that are read cannot change them
    const std::byte* from = data.data();
    const std::byte* const end = from + data.size() / stripe * stripe;
    for (; from != end; from += stripe)
      for (std::size_t i = 0; i < 4; ++i) own[i] = round(own[i], load<std::uint64_t>(from + 8 * i));
    lane = own;
    data = data.subspan(data.size() / stripe * stripe);
  }

  std::uint64_t joined() const {
    std::uint64_t hash =
        std::rotl(lane[0], 1) + std::rotl(lane[1], 7) + std::rotl(lane[2], 12) + std::rotl(lane[3], 18);
    for (const std::uint64_t each : lane) hash = merge(hash, each);
    return hash;
  }

  std::array<std::uint64_t, 4> lane;
};

// Takes the last 0 to 31 bytes.
inline std::uint64_t tail(std::uint64_t hash, std::span<const std::byte> data) {
  for (; data.size() >= 8; data = data.subspan(8))
    hash = std::rotl(hash ^ round(0, load<std::uint64_t>(data.data())), 27) * prime1 + prime4;
  if (data.size() >= 4) {
    hash = std::rotl(hash ^ load<std::uint32_t>(data.data()) * prime1, 23) * prime2 + prime3;
    data = data.subspan(4);
  }
  for (const std::byte each : data)
    hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(each) * prime5, 11) * prime1;
  return hash;
}

// Spreads every input bit over the whole result.
inline std::uint64_t avalanche(std::uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * prime2;
  hash = (hash ^ (hash >> 29)) * prime3;
  return hash ^ (hash >> 32);
}

}  // namespace xxh

// XXH64 of what comes in pieces.
class Xxh64 {
 public:
  explicit Xxh64(std::uint64_t seed = 0) : seed_(seed), lanes_(seed) {}

  void add(std::span<const std::byte> piece) {
    const auto held = size_ % xxh::stripe;
    size_ += piece.size();
    if (held > 0) {
      const auto missing = std::min(xxh::stripe - held, piece.size());
      std::copy_n(piece.data(), missing, rest_.data() + held);
      piece = piece.subspan(missing);
      if (held + missing < xxh::stripe) return;
      std::span<const std::byte> whole = rest_;
      lanes_.take(whole);
    }
    lanes_.take(piece);
    std::copy_n(piece.data(), piece.size(), rest_.data());
  }

  std::uint64_t value() const {
    const std::uint64_t hash = size_ >= xxh::stripe ? lanes_.joined() : seed_ + xxh::prime5;
    return xxh::avalanche(xxh::tail(hash + size_, std::span(rest_).first(size_ % xxh::stripe)));
  }

 private:
  std::uint64_t seed_, size_ = 0;
  xxh::Lanes lanes_;
  std::array<std::byte, xxh::stripe> rest_{};  // what does not fill a stripe yet
};

// XXH64 of `data`.
inline std::uint64_t xxh64(std::span<const std::byte> data, std::uint64_t seed = 0) {
  const std::uint64_t size = data.size();
  std::uint64_t hash = seed + xxh::prime5;
  if (size >= xxh::stripe) {
    xxh::Lanes lanes(seed);
    lanes.take(data);
    hash = lanes.joined();
  }
  return xxh::avalanche(xxh::tail(hash + size, data));
}

// How many blocks `bytes` fill; the last may be short.
inline std::size_t blocks_of(std::size_t bytes, std::size_t block_bytes) {
  if (block_bytes == 0) throw std::invalid_argument("a block must have at least one byte");
  return bytes / block_bytes + (bytes % block_bytes != 0);
}

// out[i] = XXH64 of the i-th block of `data`.
inline void hash_blocks(std::span<const std::byte> data, std::size_t block_bytes, std::span<std::uint64_t> out) {
  if (out.size() != blocks_of(data.size(), block_bytes))
    throw std::invalid_argument("hash_blocks: `out` needs one place per block");
  for (std::uint64_t& hash : out) {
    const auto block = data.first(std::min(block_bytes, data.size()));
    hash = xxh64(block);
    data = data.subspan(block.size());
  }
}

// hashes[i] = XXH64 of the i-th stretch of `data`, which ends at byte ends[i], with hashes[i] as its seed: a chain over
// several columns.
inline void hash_stretches(std::span<const std::byte> data, std::span<const std::int64_t> ends,
                           std::span<std::uint64_t> hashes) {
  if (hashes.size() != ends.size()) throw std::invalid_argument("hash_stretches: `hashes` needs one place per stretch");
  std::size_t start = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const auto end = static_cast<std::size_t>(ends[i]);
    if (end < start || end > data.size()) throw std::out_of_range("hash_stretches: a stretch ends outside of the data");
    hashes[i] = xxh64(data.subspan(start, end - start), hashes[i]);
    start = end;
  }
}

}  // namespace millstream
