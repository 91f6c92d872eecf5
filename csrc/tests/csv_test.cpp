// tests/csv_test.cpp: records and fields against the state machine of Python's csv module, byte by byte.
#include "core/parse/csv.h"

#include "check.h"
#include "raw.h"

using namespace millstream;

namespace {

struct Table {
  std::vector<std::vector<std::string>> records;
  bool open = false;
};

// Slow and plain: one byte, one state.
Table by_the_book(std::string_view text) {
  enum { record_start, field_start, in_field, in_quotes, after_quote } state = record_start;
  Table table;
  const auto newline = [&](std::size_t& i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') ++i;
    state = record_start;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool ends_line = c == '\n' || c == '\r';
    if (state == record_start) {
      table.records.emplace_back();
      if (ends_line) {
        newline(i);
        continue;
      }
      table.records.back().emplace_back();
      state = field_start;
    }
    auto& record = table.records.back();
    if (state == in_quotes) {
      if (c == '"') state = after_quote;
      else record.back() += c;
    } else if (state == after_quote && c == '"') {
      record.back() += c, state = in_quotes;
    } else if (state == field_start && c == '"') {
      state = in_quotes;
    } else if (ends_line) {
      newline(i);
    } else if (c == ',') {
      record.emplace_back(), state = field_start;
    } else {
      record.back() += c, state = in_field;
    }
  }
  table.open = state == in_quotes;
  return table;
}

void noise_is_read_by_the_book() {
  Random random;
  for (int round = 0; round < 200'000; ++round) {
    const std::string text = noise(random, {"a", ",", "\"", "\"\"", "\n", "\r", "\r\n", "a field of more than sixteen bytes"}, 16);
    const Exact exact(text);
    const Table table = by_the_book(text);
    const auto column = static_cast<std::size_t>(random.below(3));
    const Columns columns = Csv<','>::parse(exact.bytes(), column, SIZE_MAX);
    CHECK(is_sound(columns, exact.bytes()));
    CHECK(columns.row_count == static_cast<std::int64_t>(table.records.size()));
    std::size_t next = 0;
    for (std::size_t row = 0; row < table.records.size(); ++row) {
      const auto& record = table.records[row];
      const bool open = table.open && row + 1 == table.records.size();
      if (open || record.size() <= column || record[column].empty()) continue;
      CHECK(next < columns.rows.size() && columns.rows[next] == static_cast<std::int64_t>(row));
      CHECK(text_of(columns, next++) == record[column]);
    }
    CHECK(next == columns.rows.size());
  }
}

void a_cut_never_changes_the_records() {
  Random random;
  for (int round = 0; round < 100'000; ++round) {
    const std::string text = noise(random, {"a", ",", "\"", "\"\"", "\n", "\r", "\r\n"}, 16);
    const std::string seen = text.substr(0, random.below(text.size() + 1));
    for (const bool first : {false, true}) {
      const std::size_t cut = Csv<','>::cut(Exact(seen).bytes(), first);
      Table head = by_the_book(text.substr(0, cut));
      const Table rest = by_the_book(text.substr(cut));
      CHECK(!first || head.records.size() <= 1);
      CHECK(!head.open);
      head.records.insert(head.records.end(), rest.records.begin(), rest.records.end());
      CHECK(head.records == by_the_book(text).records);
    }
  }
}

}  // namespace

int main() {
  noise_is_read_by_the_book();
  a_cut_never_changes_the_records();
}
