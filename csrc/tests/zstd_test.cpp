// tests/zstd_test.cpp: frames come back whole, in any pieces; damage is an exception.
#include "core/store/zstd.h"

#include "check.h"

namespace {

using namespace millstream;

std::vector<std::byte> numbers(std::size_t size) {
  std::vector<std::byte> data(size);
  for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>((i * i) >> 7);
  return data;
}

void a_frame_comes_back() {
  for (const std::size_t size : {0UL, 1UL, 1000UL, 300'000UL}) {
    const auto data = numbers(size);
    ZstdCompressor compress(1);
    const auto frame = compress(data);
    CHECK(zstd_content_size(frame) == size);
    std::vector<std::byte> out(size);
    ZstdDecompressor()(frame, out);
    CHECK(out == data);
  }
}

void a_stream_comes_back_in_any_pieces() {
  const auto data = numbers(50'000);
  std::vector<std::byte> packed;
  for (int i = 0; i < 2; ++i) {
    ZstdCompressor compress(3);
    const auto frame = compress(data);
    packed.insert(packed.end(), frame.begin(), frame.end());
  }
  for (const std::size_t piece : {1UL, 7UL, 4096UL, 1'000'000UL}) {
    ZstdStream stream;
    std::vector<std::byte> out, part(piece);
    std::size_t place = 0;
    while (true) {
      const auto some = std::span(packed).subspan(place, std::min(piece, packed.size() - place));
      const auto step = stream(some, part);
      place += step.consumed;
      out.insert(out.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(step.produced));
      if (!step.consumed && !step.produced) break;
    }
    CHECK(stream.between_frames());
    CHECK(out.size() == 2 * data.size() && std::equal(data.begin(), data.end(), out.begin()));
  }
}

void damage_is_an_exception() {
  const auto data = numbers(1000);
  ZstdCompressor compress(1);
  const auto frame = compress(data);
  std::vector<std::byte> damaged(frame.begin(), frame.end()), out(1000), short_out(999);
  damaged[damaged.size() / 2] ^= std::byte{4};
  CHECK_THROWS((ZstdDecompressor()(damaged, out), 0), ZstdError);
  CHECK_THROWS((ZstdDecompressor()(frame, short_out), 0), ZstdError);
  std::vector<std::byte> marked(frame.begin(), frame.end());
  marked[4] ^= std::byte{0x10};  // the bit of the header that zstd itself does not look at
  CHECK_THROWS((ZstdDecompressor()(marked, out), 0), ZstdError);
  CHECK_THROWS(zstd_content_size(out), ZstdError);
  CHECK_THROWS(ZstdCompressor(1000), std::invalid_argument);
}

// A library may know the frames of zstd 0.5: it is not asked.
void frames_before_1_0_are_not_given_to_the_library() {
  const std::vector<std::byte> old{std::byte{0x25}, std::byte{0xB5}, std::byte{0x2F}, std::byte{0xFD}, std::byte{0}, std::byte{0}};
  const auto data = numbers(100);
  std::vector<std::byte> out(100);
  ZstdCompressor compress(1);
  const auto frame = compress(data);
  std::vector<std::byte> both(frame.begin(), frame.end());
  both.insert(both.end(), old.begin(), old.end());
  CHECK_THROWS(zstd_content_size(old), ZstdError);
  CHECK(!zstd_frame_bytes(old));
  CHECK_THROWS((ZstdDecompressor()(both, out), 0), ZstdError);  // a frame is one
  CHECK_THROWS(ZstdStream()(old, out), ZstdError);
  CHECK_THROWS(ZstdStream()(both, out = std::vector<std::byte>(200)), ZstdError);
  ZstdStream stream;
  (void)stream(std::span(old).first(0), out);
  CHECK_THROWS(stream(std::span(old).first(1), out), ZstdError);
}

void a_frame_without_content_may_stand_between_others() {
  std::vector<std::byte> packed{std::byte{0x5A}, std::byte{0x2A}, std::byte{0x4D}, std::byte{0x18}, std::byte{1}, std::byte{0},
                                std::byte{0},    std::byte{0},    std::byte{7}};
  const auto data = numbers(100);
  ZstdCompressor compress(1);
  const auto frame = compress(data);
  packed.insert(packed.end(), frame.begin(), frame.end());
  ZstdStream stream;
  std::vector<std::byte> out(200);
  std::size_t made = 0;
  for (std::size_t place = 0; place < packed.size(); ++place)
    made += stream(std::span(packed).subspan(place, 1), std::span(out).subspan(made)).produced;
  CHECK(stream.between_frames() && made == data.size() && std::equal(data.begin(), data.end(), out.begin()));
}

void a_library_that_was_found_stays() {
  const auto* const found = find_zstd();
  look_for_zstd({"nowhere.so"});
  CHECK(found != nullptr && find_zstd() == found);
}

}  // namespace

int main() {
  a_frame_comes_back();
  a_stream_comes_back_in_any_pieces();
  damage_is_an_exception();
  frames_before_1_0_are_not_given_to_the_library();
  a_frame_without_content_may_stand_between_others();
  a_library_that_was_found_stays();
}
