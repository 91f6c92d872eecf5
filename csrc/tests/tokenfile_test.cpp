// tests/tokenfile_test.cpp: frames come back as they were written; a frame that lies is refused, never believed.
#include "core/store/tokenfile.h"

#include <limits>
#include <vector>

#include "check.h"

using namespace millstream;

namespace {

constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();

Frame tokens_frame() { return {'T', 1, 1000, 64, 50257, 0x1122334455667788u, 12}; }

Frame packed_frame() { return {'Z', 1, 1000, 64, 50257, 7, 12, 16}; }

Frame weighed_frame() { return {'E', 0, 125, 64, 1000, 9, 0}; }

// The error's text, or "" when the frame is accepted.
std::string complaint(std::span<const std::byte> bytes, std::uint64_t file_bytes, char kind) {
  try {
    (void)parse_frame(bytes, file_bytes, kind);
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Changes bytes and repairs the check, as an attacker would.
std::array<std::byte, 64> forged(Frame frame, std::size_t at, std::uint64_t value, std::size_t size) {
  auto bytes = encode_frame(frame);
  std::memcpy(bytes.data() + at, &value, size);
  frame::store(bytes.data() + 60, frame::check_of(bytes));
  return bytes;
}

void a_frame_comes_back_as_written() {
  for (const Frame& frame : {tokens_frame(), Frame{'T', 3, 0, 64, 0, 7, 0}, Frame{'D', 0, 12, 64, 1000, 9, 0},
                             Frame{'C', 0, 3, 64, 1 << 20, 9, 0}, Frame{'S', 0, 5, 64, 77, 9, 6}, packed_frame(),
                             Frame{'T', 4, 9, 64, 1 << 24, 7, 1}, weighed_frame()}) {
    const char asked = frame.kind == 'Z' ? 'T' : frame.kind;
    const Frame back = parse_frame(encode_frame(frame), 64 + frame.count * entry_bytes(frame), asked);
    CHECK(back.kind == frame.kind && back.dtype == frame.dtype && back.count == frame.count);
    CHECK(back.bound == frame.bound && back.tag == frame.tag && back.documents == frame.documents);
    CHECK(back.block == frame.block);
  }
}

void every_complaint_says_what_was_found() {
  const auto bytes = encode_frame(tokens_frame());
  const std::array<std::byte, 64> zeros{};
  auto newer = bytes;
  newer[8] = std::byte{7};
  auto flipped = bytes;
  flipped[17] ^= std::byte{4};
  CHECK(complaint(bytes, 2064, 'T').empty());
  CHECK(mentions(complaint({}, 0, 'T'), "empty"));
  CHECK(mentions(complaint(std::span(bytes).first(10), 10, 'T'), "10 bytes"));
  CHECK(mentions(complaint(zeros, 2064, 'T'), "never finished"));
  CHECK(mentions(complaint(bytes, 2064, 'D'), "token file, not a document index"));
  CHECK(mentions(complaint(newer, 2064, 'T'), "version 7"));
  CHECK(mentions(complaint(flipped, 2064, 'T'), "damaged"));
  CHECK(mentions(complaint(bytes, 2063, 'T'), "promises 1000 entries"));
  CHECK(mentions(complaint(bytes, 2066, 'T'), "2002 bytes after"));
}

void a_lie_with_a_valid_check_is_refused() {
  const Frame frame = tokens_frame();
  CHECK(mentions(complaint(forged(frame, 12, 9, 4), 2064, 'T'), "dtype code 9"));
  CHECK(mentions(complaint(forged(frame, 24, 128, 8), 2064, 'T'), "byte 128"));
  CHECK(mentions(complaint(forged(frame, 32, 65537, 8), 2064, 'T'), "65537"));
  CHECK(mentions(complaint(forged(frame, 32, 0, 8), 2064, 'T'), "cannot be"));
  CHECK(mentions(complaint(forged(frame, 48, 0, 8), 2064, 'T'), "no documents"));
  CHECK(mentions(complaint(forged(frame, 56, 1, 4), 2064, 'T'), "zero field"));
  CHECK(mentions(complaint(forged(packed_frame(), 56, 48, 4), 2064, 'T'), "power of two"));
  CHECK(mentions(complaint(forged(packed_frame(), 56, 1 << 17, 4), 2064, 'T'), "power of two"));
  CHECK(mentions(complaint(forged(packed_frame(), 16, huge, 8), 2064, 'T'), "packed blocks"));
  CHECK(mentions(complaint(encode_frame(packed_frame()), 64 + 8 * 62, 'T'), "promises 63 packed blocks"));
  CHECK(mentions(complaint(encode_frame(packed_frame()), 2064, 'D'), "packed token file, not a document index"));
  // 2^63 + 1000 entries of 2 bytes overflow to exactly the file's 2000.
  CHECK(mentions(complaint(forged(frame, 16, (std::uint64_t{1} << 63) + 1000, 8), 2064, 'T'), "promises"));
  CHECK(mentions(complaint(forged({'C', 0, 3, 64, 64, 9, 0}, 32, 48, 8), 88, 'C'), "power of two"));
  CHECK(mentions(complaint(forged({'D', 0, 3, 64, 64, 9, 0}, 48, 48, 8), 88, 'D'), "must be 0"));
  CHECK(mentions(complaint(encode_frame(weighed_frame()), 64 + 8 * 125, 'E'), "promises 125 entries"));  // of two words each
  CHECK(mentions(complaint(encode_frame(weighed_frame()), 2064, 'D'), "not a document index"));
  CHECK(mentions(complaint(encode_frame({'D', 0, 250, 64, 1000, 9, 0}), 2064, 'E'), "document index, not a"));
  CHECK(mentions(complaint(forged(weighed_frame(), 48, 48, 8), 2064, 'E'), "must be 0"));
  CHECK(mentions(complaint(forged(weighed_frame(), 12, 4, 4), 2064, 'E'), "no dtype"));
  CHECK(mentions(complaint(forged({'T', 4, 500, 64, 9, 9, 1}, 32, (1 << 24) + 1, 8), 2064, 'T'), "16777217"));
  CHECK(mentions(complaint(forged({'S', 0, 1, 64, 64, 9, 0}, 16, huge, 8), 128, 'S'), "promises"));
}

void a_frame_that_would_not_parse_is_not_written() {
  CHECK_THROWS(encode_frame({'T', 5, 1, 64, 1, 0, 1}), std::runtime_error);
  CHECK_THROWS(encode_frame({'T', 1, 1, 64, 1 << 20, 0, 1}), std::runtime_error);
  CHECK_THROWS(encode_frame({'T', 4, 1, 64, (1 << 24) + 1, 0, 1}), std::runtime_error);
}

std::uint64_t next(std::uint64_t& state) {  // xorshift64
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

void any_mutation_is_refused_or_consistent_with_the_size() {
  std::uint64_t state = 88172645463325252u, accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    const char kind = next(state) % 2 ? 'T' : 'E';
    auto bytes = encode_frame(kind == 'T' ? tokens_frame() : weighed_frame());
    for (std::uint64_t flips = next(state) % 4; flips > 0; --flips)
      bytes[next(state) % 60] = static_cast<std::byte>(next(state) & 255);
    if (next(state) % 4) frame::store(bytes.data() + 60, frame::check_of(bytes));
    const std::uint64_t size = next(state) % 2 ? 2064 : next(state) >> (next(state) % 64);
    const auto given = std::span(bytes).first(next(state) % 8 ? 64 : next(state) % 65);
    try {
      const Frame frame = parse_frame(given, size, next(state) % 8 ? kind : 'D');
      CHECK(frame.offset == 64 && size >= 64 && (size - 64) / entry_bytes(frame) == frame.count);
      CHECK(frame.kind == kind && (kind == 'E' || frame.bound <= id_limit(static_cast<Dtype>(frame.dtype))));
      ++accepted;
    } catch (const std::runtime_error&) {
    }
  }
  CHECK(accepted > 1000);  // the loop reached the checks behind the check sum
}

}  // namespace

int main() {
  a_frame_comes_back_as_written();
  every_complaint_says_what_was_found();
  a_lie_with_a_valid_check_is_refused();
  a_frame_that_would_not_parse_is_not_written();
  any_mutation_is_refused_or_consistent_with_the_size();
}
