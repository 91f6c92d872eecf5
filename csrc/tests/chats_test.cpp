// tests/chats_test.cpp: texts are put into their shapes, tokens get their weights, and no bytes lead the reader astray.
#include "core/chat/chats.h"

#include <cstdio>

#include "check.h"
#include "random.h"
#include "raw.h"

using namespace millstream;

namespace {

const ChatNames names{"messages", "role", "content", {"tools"}, {{"user", 'u'}, {"assistant", 'a'}}, {"</think>"}};
const ChatShape answer{{{ChatShape::Kind::control, true, false, 0, 300, ""},
                        {ChatShape::Kind::text, true, false, 0, 0, "a:"},
                        {ChatShape::Kind::content, false, false, 1, 0, ""},
                        {ChatShape::Kind::control, true, false, 1, 301, ""}}};
const std::vector<std::uint16_t> one_byte_each(256, 1);
const ChatLimit no_limit{1u << 20, true, true};

struct Laid {
  ChatRows rows;
  std::vector<const ChatShape*> shapes;
  std::string text;
  std::vector<std::int64_t> runs;
};

Laid laid(std::string_view line, const ChatShape* shape) {
  const Exact exact(line);
  const std::int64_t end = static_cast<std::int64_t>(line.size());
  Laid laid{ChatRows(exact.bytes(), {&end, 1}, names), {}, {}, {}};
  laid.shapes.assign(laid.rows.shapes().size(), shape);
  laid.rows.lay(laid.shapes, laid.text, laid.runs);
  return laid;
}

ChatTokens weighed(const Laid& laid, std::span<const std::uint32_t> ids, const ChatLimit& limit = no_limit) {
  const std::int64_t end = static_cast<std::int64_t>(ids.size());
  return laid.rows.weigh(laid.shapes, {ids, {&end, laid.runs.size()}, one_byte_each, {}}, limit);
}

constexpr const char* hi = R"({"id": 1, "messages": [{"content": "hi", "role": "assistant"}]})";

void texts_stand_in_their_shapes() {
  const Laid found = laid(hi, &answer);
  CHECK(found.rows.shapes() == std::vector<std::string>{"a"});
  CHECK(found.text == "a:hi" && found.runs == std::vector<std::int64_t>{4});
}

void tokens_have_the_least_weight_of_their_parts() {
  const Laid found = laid(hi, &answer);
  const ChatTokens tokens = weighed(found, std::vector<std::uint32_t>{'a', ':', 'h', 'i'});
  CHECK((tokens.ids == std::vector<std::uint32_t>{300, 'a', ':', 'h', 'i', 301}));
  CHECK((tokens.weights == std::vector<float>{0, 0, 0, 1, 1, 1}));
  CHECK(tokens.ends == std::vector<std::int64_t>{6} && tokens.straddlers == 0);
  std::vector<std::uint16_t> sizes(256, 1);
  sizes['x'] = 3;  // lies in the format's text and in the content
  const std::vector<std::uint32_t> ids{'a', 'x'};
  const std::int64_t end = 2;
  const ChatTokens across = found.rows.weigh(found.shapes, {ids, {&end, 1}, sizes, {}}, no_limit);
  CHECK((across.weights == std::vector<float>{0, 0, 0, 1}) && across.straddlers == 1);
  CHECK(found.rows.weigh(found.shapes, {ids, {&end, 1}, sizes, {}}, {1u << 20, true, false}).places.empty());
}

void what_does_not_spell_the_text_is_left_out() {
  const Laid found = laid(hi, &answer);
  CHECK(weighed(found, std::vector<std::uint32_t>{'a', ':', 'h'}).places.empty());
  CHECK(weighed(found, std::vector<std::uint32_t>{'a', ':', 'h', 'i', 'i'}).places.empty());
  CHECK(weighed(found, std::vector<std::uint32_t>{'a', ':', 'h', 256}).places.empty());
  CHECK(weighed(found, std::vector<std::uint32_t>{'a', ':', 'h', 'i'}, {5, true, true}).places.empty());
  CHECK_THROWS(found.rows.weigh(found.shapes, {{}, {}, one_byte_each, {}}, no_limit), std::invalid_argument);
}

void doubtful_rows_are_left() {
  for (const char* line :
       {"", "{}", "[]", R"({"messages": []})", R"({"messages": [{"role": "assistant", "content": ""}]})",
        R"({"messages": [{"role": "bot", "content": "x"}]})", R"({"messages": [{"role": "assistant"}]})",
        R"({"messages": [{"role": "assistant", "content": "x", "weight": 1}]})", R"({"messages": [{"content": "x"}]})",
        R"({"messages": [{"role": "assistant", "content": "a</think>"}]})", R"({"messages": {"role": "assistant"}})",
        R"({"messages": [{"role": "assistant", "content": "x"}], "tools": []})",
        R"({"messages": [{"role": "assistant", "content": "x"}]} y)", R"({"messages": [{"role": "assistant", "content": "x"})"})
    CHECK(laid(line, &answer).rows.shapes().empty());
  for (const char* content : {" x", "x\\n", "\\u3000x", "x\\u2003", "\\u00a0x", "x\\u0085"})
    CHECK(laid(R"({"messages": [{"role": "assistant", "content": ")" + std::string(content) + R"("}]})", &answer).runs.empty());
}

void no_bytes_lead_it_astray() {
  Random random;
  const std::string_view whole(hi);
  for (int round = 0; round < 20'000; ++round) {
    std::string line(whole.substr(0, random.below(whole.size() + 1)));
    for (std::size_t change = random.below(4); change > 0 && !line.empty(); --change)
      line[random.below(line.size())] = static_cast<char>(random.below(256));
    const Laid found = laid(line, &answer);
    CHECK(found.runs.size() <= 1);
  }
}

}  // namespace

int main() {
  texts_stand_in_their_shapes();
  tokens_have_the_least_weight_of_their_parts();
  what_does_not_spell_the_text_is_left_out();
  doubtful_rows_are_left();
  no_bytes_lead_it_astray();
}
