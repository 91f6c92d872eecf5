// tests/jsonl_test.cpp: ordinary lines are read, doubtful ones are left, and no bytes lead the parser astray.
#include "core/parse/jsonl.h"

#include "check.h"
#include "raw.h"

using namespace millstream;

namespace {

Columns parse(std::string_view text) { return parse_jsonl(Exact(text).bytes(), "text"); }

std::string only(std::string_view line) {
  const Columns columns = parse(line);
  return columns.rows.size() == 1 ? text_of(columns, 0) : "<not one>";
}

bool is_odd(std::string_view line) { return parse(line).odd.size() == 3; }

void ordinary_lines_give_their_text() {
  CHECK(only(R"({"text": "hello"})") == "hello");
  CHECK(only(R"( { "id" : -1.5e+3 , "text" : "a" , "x" : [ { } , [ ] , true , null , "s\u0041" ] } )") == "a");
  CHECK(only(R"({"text":"\"\\\/\b\f\n\r\t\u00e9\u20ac\ud83d\ude00"})") == "\"\\/\b\f\n\r\t\u00e9\u20ac\U0001F600");
  CHECK(only("{\"text\": \"\xc3\xa9 and a longer text, longer than one block of sixteen\"}\r") ==
        "\xc3\xa9 and a longer text, longer than one block of sixteen");
}

void doubtful_lines_are_left() {
  for (const char* line : {"{}", "[]", "1", "{\"text\": 1}", "{\"text\": \"a\"} x", "{\"text\": \"a\",}", "{\"text\": \"a\"",
                           "{\"text\": \"a", "{\"text\": \"\\ud800\"}", "{\"text\": \"\\ude00\"}", "{\"text\": \"\\x\"}",
                           "{\"text\": \"a\tb\"}", "{\"text\": \"\xff\"}", "{\"text\": \"a\", \"text\": \"b\"}",
                           "{\"t\\u0065xt\": \"a\"}", "{\"text\": \"a\", \"n\": NaN}", "{\"text\": \"a\", \"n\": 01}",
                           "{\"text\": \"a\", \"n\": -}", "{\"text\": \"a\", \"n\": 1.}", "{\"text\": \"a\", \"n\": tru}",
                           "{\"text\": \"a\", \"n\": [1 2]}", "{\"text\": \"a\", \"n\": {1: 2}}", "{\"text\": \"a\", \"n\": [}"})
    CHECK(is_odd(line));
  CHECK(is_odd("{\"text\": \"a\", \"n\": " + std::string(100, '[') + std::string(100, ']') + "}"));
  CHECK(is_odd("{\"text\": \"a\", \"n\": " + std::string(1000, '1') + "}"));
}

void every_row_is_counted_and_has_its_place() {
  const Columns columns = parse("{\"text\": \"a\"}\n \t\r\n{\"text\": \"\"}\nbad\n{\"text\": \"bc\"}");
  CHECK(columns.row_count == 5 && columns.blank == 1 && columns.empty == 1);
  CHECK((columns.rows == std::vector<std::int64_t>{0, 4}));
  CHECK((columns.odd == std::vector<std::int64_t>{3, 31, 34}));
  CHECK((columns.starts == std::vector<std::int64_t>{0, 35}) && (columns.stops == std::vector<std::int64_t>{13, 49}));
}

void noise_never_leads_beyond_the_bytes() {
  Random random;
  for (int round = 0; round < 200'000; ++round) {
    std::string text = round % 2 ? "{\"text\": \"" : "";
    text += noise(random, {"{", "}", "[", "]", "\"", "\\", ":", ",", "\n", "text", "\"text\"", "\\u", "d83d", "1", "-", ".", "e",
                           "true", " ", "\xc3", "\xa9", "\xff", "a long run without anything special"}, 24);
    const Exact exact(text);
    CHECK(is_sound(parse_jsonl(exact.bytes(), "text"), exact.bytes()));
  }
}

}  // namespace

int main() {
  ordinary_lines_give_their_text();
  doubtful_lines_are_left();
  every_row_is_counted_and_has_its_place();
  noise_never_leads_beyond_the_bytes();
}
