// tests/narrow_test.cpp: documents come out narrow, in order, each with its end token; what does not fit is refused.
#include "core/store/narrow.h"

#include <vector>

#include "check.h"

using namespace millstream;

namespace {

void documents_end_with_their_token() {
  const std::vector<std::uint32_t> ids{1, 2, 65535, 4};
  const std::vector<std::int64_t> ends{2, 2, 4};
  std::vector<std::uint16_t> out(7);
  narrow_documents<std::uint16_t>(ids, ends, 9, out);
  CHECK((out == std::vector<std::uint16_t>{1, 2, 9, 9, 65535, 4, 9}));
  std::vector<std::uint16_t> bare(4);
  narrow_documents<std::uint16_t>(ids, ends, std::nullopt, bare);
  CHECK((bare == std::vector<std::uint16_t>{1, 2, 65535, 4}));
}

void what_does_not_fit_is_refused() {
  const std::vector<std::uint32_t> ids{1, 65536};
  std::vector<std::uint16_t> out(2), three(3);
  std::vector<std::int32_t> wide(2);
  const auto narrow = [](auto ids, std::vector<std::int64_t> ends, auto eos, auto& out) {
    narrow_documents<typename std::remove_reference_t<decltype(out)>::value_type>(ids, ends, eos, out);
    return 0;
  };
  CHECK_THROWS(narrow(std::span(ids), {2}, std::nullopt, out), std::out_of_range);
  CHECK(narrow(std::span(ids), {2}, std::nullopt, wide) == 0 && wide[1] == 65536);
  for (const std::vector<std::int64_t>& ends : {std::vector<std::int64_t>{1}, {2, 1}, {3}, {-1, 2}, {}})
    CHECK_THROWS(narrow(std::span(ids), ends, std::nullopt, wide), std::invalid_argument);
  CHECK_THROWS(narrow(std::span(ids), {2}, std::optional<std::uint32_t>(70000), three), std::invalid_argument);
}

}  // namespace

int main() {
  documents_end_with_their_token();
  what_does_not_fit_is_refused();
}
