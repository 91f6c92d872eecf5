// tests/assemble_test.cpp: rows against a slow and obvious way to make them.
#include "core/fill/assemble.h"

#include <array>
#include <limits>
#include <vector>

#include "check.h"
#include "random.h"

using namespace millstream;

namespace {

struct Reference {
  std::vector<std::int64_t> inputs, labels, positions, starts;
  std::size_t longest = 0, tokens = 0;
};

// What one row must be, token by token.
template <typename In>
Reference expected_row(const std::vector<Segment>& segments, const RowFormat& format, bool isolated, std::size_t row_start) {
  Reference row;
  for (const auto& segment : segments) {
    const auto* const tokens = static_cast<const In*>(segment.tokens);
    for (std::uint32_t i = 0; i < segment.count; ++i) {
      if (i == 0) row.starts.push_back(static_cast<std::int64_t>(row_start + row.inputs.size()));
      const bool has_next = i + 1 < segment.count || segment.followed;
      row.inputs.push_back(static_cast<std::int64_t>(tokens[i]));
      row.positions.push_back(i);
      if (format.labels == Labels::next) row.labels.push_back(has_next ? static_cast<std::int64_t>(tokens[i + 1]) : no_loss);
      else row.labels.push_back(isolated && i == 0 ? no_loss : static_cast<std::int64_t>(tokens[i]));
    }
    row.longest = std::max<std::size_t>(row.longest, segment.count);
  }
  row.tokens = row.inputs.size();
  while (row.inputs.size() < format.length) {
    row.starts.push_back(static_cast<std::int64_t>(row_start + row.inputs.size()));
    row.longest = std::max<std::size_t>(row.longest, 1);
    row.inputs.push_back(format.pad_id);
    row.labels.push_back(no_loss);
    row.positions.push_back(0);
  }
  return row;
}

template <typename Out>
std::int64_t value_of(std::int64_t expected) {
  return static_cast<std::int64_t>(static_cast<Out>(expected));  // ids over 2^31 do not fit int32; that is the caller's choice
}

template <typename In, typename Out>
void check_row(const std::vector<Segment>& segments, const RowFormat& format, bool isolated) {
  constexpr Out untouched = 77;
  constexpr std::size_t row_start = 1000;
  const auto expected = expected_row<In>(segments, format, isolated, row_start);
  std::vector<Out> inputs(format.length + 1, untouched), labels(format.length + 1, untouched);
  std::vector<Out> positions(format.length + 1, untouched);
  std::vector<std::int32_t> offsets(format.length + 1, -1);
  SegmentStarts starts{offsets.data()};
  const RowSpace<Out> space{inputs.data(), labels.data(), isolated ? positions.data() : nullptr};
  const auto facts = assemble_row<In, Out>(segments, format, space, row_start, isolated ? &starts : nullptr);
  CHECK(facts.tokens == expected.tokens && !facts.fractional);
  for (std::size_t i = 0; i < format.length; ++i) {
    CHECK(inputs[i] == value_of<Out>(expected.inputs[i]));
    CHECK(labels[i] == value_of<Out>(expected.labels[i]));
    CHECK(!isolated || positions[i] == expected.positions[i]);
  }
  CHECK(inputs.back() == untouched && labels.back() == untouched && positions.back() == untouched);
  if (!isolated) return;
  CHECK(starts.count == expected.starts.size() && starts.longest == expected.longest);
  for (std::size_t i = 0; i < starts.count; ++i) CHECK(offsets[i] == expected.starts[i]);
  CHECK(offsets[starts.count] == -1);
}

// Cuts random tokens into segments, some of them empty, that fill the row or leave it short.
template <typename In>
void check_random_rows(Random& random, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const auto length = random.between(1, round % 10 == 0 ? 300 : 20);
    std::vector<In> tokens(length + 8);
    for (auto& token : tokens) token = static_cast<In>(random.word() & std::numeric_limits<In>::max());
    std::vector<Segment> segments;
    std::size_t begin = 0;
    for (auto wanted = random.below(6); wanted > 0; --wanted) {
      const auto count = random.below(length - begin + 1);
      segments.push_back({tokens.data() + begin, static_cast<std::uint32_t>(count), random.chance(2)});
      begin += count;
    }
    for (const auto labels : {Labels::next, Labels::same})
      for (const bool isolated : {false, true}) {
        const RowFormat format{length, labels, static_cast<std::int64_t>(random.below(50'000)) - 1};
        check_row<In, std::int64_t>(segments, format, isolated);
        check_row<In, std::int32_t>(segments, format, isolated);
      }
  }
}

void every_dtype_gives_the_obvious_rows() {
  Random random;
  check_random_rows<std::uint16_t>(random, 800);
  check_random_rows<std::uint32_t>(random, 800);
  check_random_rows<std::int32_t>(random, 800);
}

void a_row_of_nothing_is_padding() {
  for (const bool isolated : {false, true}) {
    check_row<std::uint16_t, std::int64_t>({}, {5, Labels::next, 9}, isolated);
    check_row<std::uint16_t, std::int64_t>({{nullptr, 0, false}}, {5, Labels::same, 9}, isolated);
  }
}

// One window, spelled out: the convention that everything else relies on.
void a_window_is_what_the_readme_says() {
  const std::array<std::uint16_t, 5> tokens = {10, 11, 12, 13, 14};
  std::array<std::int64_t, 4> inputs{}, labels{};
  const std::array<Segment, 1> whole = {{{tokens.data(), 4, true}}};
  assemble_row<std::uint16_t, std::int64_t>(whole, {4, Labels::next, 0}, {inputs.data(), labels.data(), nullptr}, 0, nullptr);
  CHECK((inputs == std::array<std::int64_t, 4>{10, 11, 12, 13} && labels == std::array<std::int64_t, 4>{11, 12, 13, 14}));
  assemble_row<std::uint16_t, std::int64_t>(whole, {4, Labels::same, 0}, {inputs.data(), labels.data(), nullptr}, 0, nullptr);
  CHECK((labels == std::array<std::int64_t, 4>{10, 11, 12, 13}));
  const std::array<Segment, 2> two = {{{tokens.data(), 2, false}, {tokens.data() + 2, 1, false}}};
  std::array<std::int64_t, 4> positions{};
  std::array<std::int32_t, 5> offsets{};
  SegmentStarts starts{offsets.data()};
  assemble_row<std::uint16_t, std::int64_t>(two, {4, Labels::next, 0}, {inputs.data(), labels.data(), positions.data()}, 8,
                                            &starts);
  CHECK((inputs == std::array<std::int64_t, 4>{10, 11, 12, 0} && labels == std::array<std::int64_t, 4>{11, -100, -100, -100}));
  CHECK((positions == std::array<std::int64_t, 4>{0, 1, 0, 0} && starts.count == 3 && starts.longest == 2));
  CHECK((offsets == std::array<std::int32_t, 5>{8, 10, 11, 0, 0}));
}

// The vectorised loops against plain ones, at every length around their strides and every alignment.
template <typename In, typename Out>
void check_widen(Random& random) {
  std::vector<In> in(200);
  for (auto& value : in) value = static_cast<In>(random.word());
  for (std::size_t count = 0; count <= 140; ++count)
    for (std::size_t shift = 0; shift < 4; ++shift) {
      std::vector<Out> out(count + 1, Out{5});
      widen(in.data() + shift, out.data(), count);
      for (std::size_t i = 0; i < count; ++i) CHECK(out[i] == static_cast<Out>(in[shift + i]));
      CHECK(out[count] == Out{5});
    }
}

template <typename In>
void check_largest(Random& random) {
  for (std::size_t count = 0; count <= 140; ++count) {
    std::vector<In> in(count);
    std::uint32_t top = 0;
    for (auto& value : in) {
      value = static_cast<In>(random.word() >> random.below(64));
      top = std::max(top, static_cast<std::uint32_t>(value));
    }
    CHECK(largest(in.data(), count) == top);
  }
  const std::array<In, 3> low = {0, 1, 2};
  CHECK(largest(low.data(), 3) == 2);
}

void kernels_agree_with_plain_loops() {
  Random random;
  check_widen<std::uint16_t, std::int64_t>(random);
  check_widen<std::uint16_t, std::int32_t>(random);
  check_widen<std::uint32_t, std::int64_t>(random);
  check_widen<std::uint32_t, std::int32_t>(random);
  check_widen<std::int32_t, std::int64_t>(random);
  check_widen<std::int32_t, std::int32_t>(random);
  check_largest<std::uint16_t>(random);
  check_largest<std::uint32_t>(random);
  check_largest<std::int32_t>(random);
  const std::array<std::int32_t, 2> negative = {5, -1};
  CHECK(largest(negative.data(), 2) == 0xFFFFFFFFu);
}

}  // namespace

int main() {
  every_dtype_gives_the_obvious_rows();
  a_row_of_nothing_is_padding();
  a_window_is_what_the_readme_says();
  kernels_agree_with_plain_loops();
}
