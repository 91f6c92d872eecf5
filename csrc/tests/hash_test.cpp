// tests/hash_test.cpp: XXH64 against known values, and blocks and stretches against the whole.
#include "core/kernels/hash.h"

#include <string_view>
#include <vector>

#include "check.h"

using namespace millstream;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

// Bytes 0, 1, 2, ... 255, 0, ...
std::vector<std::byte> ramp(std::size_t size) {
  std::vector<std::byte> out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i & 255);
  return out;
}

void known_values_are_reproduced() {
  CHECK(xxh64({}) == 0xEF46DB3751D8E999u);
  CHECK(xxh64({}, 1) == 0xD5AFBA1336A3BE4Bu);
  CHECK(xxh64(bytes_of("a")) == 0xD24EC4F1A98C6E5Bu);
  CHECK(xxh64(bytes_of("abc")) == 0x44BC2CF5AD770999u);
  CHECK(xxh64(ramp(31)) == 0xC346D2B59B4D8EE1u);
  CHECK(xxh64(ramp(32)) == 0xCBF59C5116FF32B4u);
  CHECK(xxh64(ramp(33)) == 0x0C535D1ACAFB8EADu);
  CHECK(xxh64(ramp(63)) == 0xE26AA9E2A95F8E4Fu);
  CHECK(xxh64(ramp(64)) == 0xF7C67301DB6713F0u);
  CHECK(xxh64(ramp(100)) == 0x6AC1E58032166597u);
  CHECK(xxh64(ramp(1000)) == 0x6EF436B00EBA4078u);
  CHECK(xxh64(ramp(101), 2654435761u) == 0xA1C6D4174C37136Du);
}

void the_address_of_the_bytes_does_not_matter() {
  const auto data = ramp(100);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::vector<std::byte> moved(shift);
    moved.insert(moved.end(), data.begin(), data.end());
    CHECK(xxh64(std::span(moved).subspan(shift)) == xxh64(data));
  }
}

void pieces_hash_as_the_whole_wherever_it_is_cut() {
  const auto data = ramp(150);
  for (std::size_t size = 0; size <= data.size(); ++size)
    for (std::size_t first = 0; first <= size; first += 7)
      for (std::size_t second = first; second <= size; second += 5) {
        const auto whole = std::span(data).first(size);
        Xxh64 hash(3);
        for (const auto piece : {whole.first(first), whole.subspan(first, second - first), whole.subspan(second)}) hash.add(piece);
        CHECK(hash.value() == xxh64(whole, 3));
      }
}

void each_block_has_its_own_hash() {
  const auto data = ramp(1000);
  std::vector<std::uint64_t> out(4);
  hash_blocks(data, 256, out);
  for (std::size_t i = 0; i < 3; ++i) CHECK(out[i] == xxh64(std::span(data).subspan(256 * i, 256)));
  CHECK(out[3] == xxh64(std::span(data).subspan(768)));
  hash_blocks({}, 256, {});
}

void each_stretch_goes_on_with_its_own_hash() {
  const auto data = ramp(100);
  const std::vector<std::int64_t> ends{0, 40, 100};
  std::vector<std::uint64_t> hashes{7, 0, 9};
  hash_stretches(data, ends, hashes);
  CHECK(hashes[0] == xxh64({}, 7));
  CHECK(hashes[1] == xxh64(std::span(data).first(40)));
  CHECK(hashes[2] == xxh64(std::span(data).subspan(40), 9));
  for (const auto& wrong : {std::vector<std::int64_t>{40, 30, 100}, {0, 40, 101}, {-1, 0, 100}})
    CHECK_THROWS(hash_stretches(data, wrong, hashes), std::out_of_range);
  CHECK_THROWS(hash_stretches(data, std::span(ends).first(2), hashes), std::invalid_argument);
}

void wrong_sizes_are_refused() {
  const auto data = ramp(10);
  std::vector<std::uint64_t> out(2);
  CHECK_THROWS(hash_blocks(data, 4, out), std::invalid_argument);
  CHECK_THROWS(hash_blocks(data, 0, out), std::invalid_argument);
}

}  // namespace

int main() {
  known_values_are_reproduced();
  the_address_of_the_bytes_does_not_matter();
  pieces_hash_as_the_whole_wherever_it_is_cut();
  each_block_has_its_own_hash();
  each_stretch_goes_on_with_its_own_hash();
  wrong_sizes_are_refused();
}
