// core/chat/chats.h: rows of plain conversations -> the text that a tokenizer encodes -> tokens, each with its weight.
//
// What a format writes around the texts of a conversation depends on who speaks when, on its shape, and on the texts
// only where it trims them or looks for something in them. So a shape is rendered once, elsewhere, and here the texts of
// many rows are put into their shapes. A row that is rare, wrong or merely doubtful is left out of the
// results, and a slower reader decides about it.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/parse/columns.h"
#include "core/parse/json.h"

namespace millstream {

// What rows of conversations are written in.
struct ChatNames {
  std::string messages, role, content;  // the fields of a row and of its messages
  std::vector<std::string> besides;     // fields of a row that say more: a slower reader reads them
  std::vector<std::pair<std::string, char>> roles;  // the name of a role, and its letter in a shape
  std::vector<std::string> looked_for;  // texts that a format looks for in contents
};

// What a format makes of conversations of one shape, as a list of parts: its own texts, contents, control tokens.
struct ChatShape {
  enum class Kind : std::uint8_t { text, content, control };
  struct Part {
    Kind kind;
    bool opens;       // a run begins here: nothing before it is encoded together with it
    bool straddles;   // a control token that lies in parts of different weight
    float weight;
    std::uint32_t number;  // of the message, or the control token's id
    std::string text;
  };
  std::vector<Part> parts;
  bool verbatim = false;  // contents that begin or end with white space are written as they are
};

struct ChatLimit {
  std::size_t most_tokens;  // longer rows are left out
  bool keep_untrained;      // and so are those with nothing to learn,
  bool keep_straddlers;     // or with tokens in parts of different weight, unless these are kept
};

// The tokens of runs, end to end.
struct Encoded {
  std::span<const std::uint32_t> ids;
  std::span<const std::int64_t> ends;
  std::span<const std::uint16_t> sizes;  // the bytes that each id stands for; 0: none, or a control token
  std::span<const std::int64_t> altered;  // runs that the tokenizer changes first, in order

  std::span<const std::uint32_t> run(std::size_t number) const {
    const std::int64_t begin = number == 0 ? 0 : ends[number - 1];
    if (number >= ends.size() || ends[number] < begin || ends[number] > static_cast<std::int64_t>(ids.size()))
      throw std::invalid_argument("the runs are not those that were laid");
    return ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(ends[number] - begin));
  }
  std::size_t bytes_of(std::uint32_t id) const { return id < sizes.size() ? sizes[id] : 0; }
};

struct ChatTokens {
  std::vector<std::uint32_t> ids;
  std::vector<float> weights;
  std::vector<std::int64_t> ends, places;  // of each row: its end in the tokens, and its place in the block
  std::int64_t straddlers = 0;
};

class ChatRows {
 public:
  // Rows that lie end to end: row i is text[ends[i - 1] .. ends[i]).
  ChatRows(Bytes text, std::span<const std::int64_t> ends, const ChatNames& names)
      : said_(std::make_unique_for_overwrite<std::uint8_t[]>(text.size() + 16)), saying_(said_.get()) {
    std::int64_t begin = 0;
    for (std::size_t place = 0; place < ends.size(); begin = ends[place++]) {
      if (ends[place] < begin || ends[place] > static_cast<std::int64_t>(text.size()))
        throw std::invalid_argument("ends must rise and stay inside the text");
      read(text.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(ends[place] - begin)), names, place);
    }
  }

  // Who speaks when, a letter for each message: every shape that occurs.
  const std::vector<std::string>& shapes() const { return shapes_; }

  // Put rows into their shapes; one without parts is not known. Runs of text lie end to end and end at `runs`.
  void lay(std::span<const ChatShape* const> shapes, std::string& text, std::vector<std::int64_t>& runs) {
    if (shapes.size() != shapes_.size()) throw std::invalid_argument("one for each shape");
    std::erase_if(rows_, [&](const Row& row) {
      const ChatShape& shape = *shapes[row.shape];
      return shape.parts.empty() || (row.padded && !shape.verbatim);
    });
    for (const Row& row : rows_) {
      std::size_t run = text.size();
      const auto close = [&] {
        if (text.size() > run) runs.push_back(static_cast<std::int64_t>(run = text.size()));
      };
      for (const auto& part : shapes[row.shape]->parts) {
        if (part.opens) close();
        if (part.kind == ChatShape::Kind::content) text += said(row, part.number);
        if (part.kind == ChatShape::Kind::text) text += part.text;
      }
      close();
    }
  }

  // Give each token the smallest weight of the parts that it lies in. A row whose tokens do not spell its text, or hold
  // a control token, is left out.
  ChatTokens weigh(std::span<const ChatShape* const> shapes, const Encoded& encoded, const ChatLimit& limit) const {
    if (shapes.size() != shapes_.size()) throw std::invalid_argument("one for each shape");
    ChatTokens made;
    made.ids.reserve(encoded.ids.size() * 9 / 8), made.weights.reserve(encoded.ids.size() * 9 / 8);
    std::size_t run = 0;
    for (const Row& row : rows_) {
      const std::size_t begin = made.ids.size();
      std::int64_t straddlers = 0;
      const bool right = weigh_row(row, *shapes[row.shape], encoded, run, made, straddlers);
      const auto trained = [&] {
        return std::any_of(made.weights.begin() + static_cast<std::ptrdiff_t>(begin) + 1, made.weights.end(),
                           [](float weight) { return weight != 0; });
      };
      const std::size_t size = made.ids.size() - begin;
      if (!right || size == 0 || size > limit.most_tokens || (straddlers != 0 && !limit.keep_straddlers) ||
          !(limit.keep_untrained || trained())) {
        made.ids.resize(begin), made.weights.resize(begin);
        continue;
      }
      made.ends.push_back(static_cast<std::int64_t>(made.ids.size()));
      made.places.push_back(static_cast<std::int64_t>(row.place));
      made.straddlers += straddlers;
    }
    if (run != encoded.ends.size()) throw std::invalid_argument("the runs are not those that were laid");
    return made;
  }

 private:
  struct Row {
    std::size_t place, first;  // among the rows, and its first message
    std::uint32_t shape;
    bool padded;  // some content begins or ends with white space
  };

  std::string_view said(const Row& row, std::size_t message) const {
    const std::size_t at = row.first + message;
    const std::size_t begin = at == 0 ? 0 : ends_[at - 1];
    return {reinterpret_cast<const char*>(said_.get()) + begin, ends_[at] - begin};
  }

  void read(Bytes line, const ChatNames& names, std::size_t place) {
    Row row{place, ends_.size(), 0, false};
    const auto begin = saying_;
    shape_.clear();
    if (is_utf8(line.data(), line.size()) && read_row({line.data(), line.data() + line.size()}, names, row)) {
      const auto [known, fresh] = numbers_.try_emplace(shape_, static_cast<std::uint32_t>(shapes_.size()));
      if (fresh) shapes_.push_back(shape_);
      row.shape = known->second;
      rows_.push_back(row);
    } else {
      saying_ = begin;
      ends_.resize(row.first);
    }
  }

  bool read_row(JsonCursor line, const ChatNames& names, Row& row) {
    bool found = false;
    line.skip_space();
    const bool read = line.object([&](std::string_view key) {
      if (key == names.messages) {
        if (found) return false;
        found = true;
        return line.array([&] { return read_message(line, names, row); });
      }
      return std::find(names.besides.begin(), names.besides.end(), key) == names.besides.end() && line.value();
    });
    line.skip_space();
    return read && found && line.at_end() && !shape_.empty();
  }

  // A message of two fields, both strings.
  bool read_message(JsonCursor& line, const ChatNames& names, Row& row) {
    char letter = 0;
    const std::uint8_t* const begin = saying_;
    bool found = false;
    const bool read = line.object([&](std::string_view key) {
      if (key == names.role && letter == 0) {
        std::string_view name;
        if (!line.plain_key(name)) return false;  // a string without escapes, as keys are
        for (const auto& [known, its] : names.roles)
          if (known == name) letter = its;
        return letter != 0;
      }
      if (key != names.content || found) return false;
      return found = line.take('"') && line.string<true>(saying_);
    });
    if (!read || !found || letter == 0 || saying_ == begin) return false;
    const std::string_view content(reinterpret_cast<const char*>(begin), static_cast<std::size_t>(saying_ - begin));
    for (const auto& text : names.looked_for)
      if (content.find(text) != content.npos) return false;
    row.padded |= begins_or_ends_blank(content);
    shape_ += letter;
    ends_.push_back(static_cast<std::size_t>(saying_ - said_.get()));
    return true;
  }

  // Whether trimming might change a text. Beyond ASCII every character of the blocks that hold white space counts.
  static bool begins_or_ends_blank(std::string_view text) {
    const auto blank = [](std::uint8_t byte) { return byte <= 0x20 || byte == 0x7F; };
    const auto first = static_cast<std::uint8_t>(text.front()), last = static_cast<std::uint8_t>(text.back());
    if (blank(first) || blank(last) || first == 0xC2) return true;
    if (first >= 0xE1 && first <= 0xE3 && text.size() >= 3 && in_blank_block(text.substr(0, 3))) return true;
    if (last < 0x80) return false;
    if (text.size() >= 2 && static_cast<std::uint8_t>(text[text.size() - 2]) == 0xC2) return true;
    return text.size() >= 3 && in_blank_block(text.substr(text.size() - 3));
  }

  // U+1680, U+2000 to U+207F, U+3000 to U+303F.
  static bool in_blank_block(std::string_view three) {
    const auto is = [&](std::uint8_t a, std::uint8_t b) {
      return static_cast<std::uint8_t>(three[0]) == a && static_cast<std::uint8_t>(three[1]) == b;
    };
    return is(0xE1, 0x9A) || is(0xE2, 0x80) || is(0xE2, 0x81) || is(0xE3, 0x80);
  }

  // Weigh the tokens of a row, whose first run is number `run`; gives whether they are what they should be.
  bool weigh_row(const Row& row, const ChatShape& shape, const Encoded& encoded, std::size_t& run, ChatTokens& made,
                 std::int64_t& straddlers) const {
    bool right = true;
    const std::size_t count = shape.parts.size();
    for (std::size_t first = 0, last = 0; first < count; first = last) {
      const auto& part = shape.parts[first];
      last = first + 1;
      if (part.kind == ChatShape::Kind::control) {
        made.ids.push_back(part.number), made.weights.push_back(part.weight);
        straddlers += part.straddles;
        continue;
      }
      while (last < count && !shape.parts[last].opens) ++last;
      right = right && !std::binary_search(encoded.altered.begin(), encoded.altered.end(), static_cast<std::int64_t>(run));
      const auto ids = encoded.run(run++);  // counted also where the row is wrong already
      right = right && weigh_run(row, std::span(shape.parts).subspan(first, last - first), ids, encoded, made, straddlers);
    }
    return right;
  }

  bool weigh_run(const Row& row, std::span<const ChatShape::Part> parts, std::span<const std::uint32_t> ids,
                 const Encoded& encoded, ChatTokens& made, std::int64_t& straddlers) const {
    const auto size_of = [&](const ChatShape::Part& part) {
      return part.kind == ChatShape::Kind::content ? said(row, part.number).size() : part.text.size();
    };
    std::size_t part = 0, at = 0, part_end = size_of(parts[0]);
    for (const std::uint32_t id : ids) {
      const std::size_t size = encoded.bytes_of(id);
      if (size == 0) return false;
      if (at == part_end) {  // the part before ended where a token did
        if (++part == parts.size()) return false;
        part_end += size_of(parts[part]);
      }
      at += size;
      const float first = parts[part].weight;
      float weight = first;
      bool mixed = false;
      for (; at > part_end; part_end += size_of(parts[part])) {
        if (++part == parts.size()) return false;
        mixed |= parts[part].weight != first;
        weight = std::min(weight, parts[part].weight);
      }
      made.ids.push_back(id), made.weights.push_back(weight);
      straddlers += mixed;
    }
    return at == part_end && part + 1 == parts.size();
  }

  std::unique_ptr<std::uint8_t[]> said_;  // contents end to end
  std::uint8_t* saying_;
  std::vector<std::size_t> ends_;  // of each message in them
  std::vector<Row> rows_;
  std::vector<std::string> shapes_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::string shape_;
};

}  // namespace millstream
