// core/parse/json.h: a place in a line of JSON, and steps over what comes next.
//
// It may refuse, but not lie: what it accepts, Python's json.loads reads the same way. What is rare, wrong or merely
// doubtful (deep nesting, NaN, a key with escapes, half a surrogate pair) is refused, and a slower reader decides.
#pragma once

#include <array>
#include <string_view>

#include "core/text/scan.h"
#include "core/text/utf8.h"

namespace millstream {

class JsonCursor {
 public:
  JsonCursor(const std::uint8_t* first, const std::uint8_t* last) : at_(first), end_(last) {}

  bool at_end() const { return at_ == end_; }

  bool take(char wanted) {
    if (at_ == end_ || *at_ != static_cast<std::uint8_t>(wanted)) return false;
    ++at_;
    return true;
  }

  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }

  // A key without escapes: then its bytes are its name.
  bool plain_key(std::string_view& key) {
    if (!take('"')) return false;
    const std::uint8_t* stop = find_any<special>(at_, end_);
    if (stop == end_ || *stop != '"') return false;
    key = {reinterpret_cast<const char*>(at_), static_cast<std::size_t>(stop - at_)};
    at_ = stop + 1;
    return true;
  }

  // The rest of a string behind its first quote; `keep` writes what it says. The places are kept in variables of its
  // own, since writing bytes through a pointer might, for all the compiler knows, change any member.
  template <bool keep>
  bool string(std::uint8_t*& out) {
    const std::uint8_t* at = at_;
    const std::uint8_t* const end = end_;
    std::uint8_t* to = out;
    for (;;) {
      if constexpr (keep)
        at = copy_until<special>(at, end, to);
      else
        at = find_any<special>(at, end);
      if (at == end || *at < 0x20) return false;
      if (*at == '"') break;
      if (end - at < 2) return false;
      const std::uint8_t said = said_by[at[1]];
      at += 2;
      if (said != 0) {
        if constexpr (keep) *to++ = said;
        continue;
      }
      at_ = at, out = to;
      if (at[-1] != 'u' || !unicode<keep>(out)) return false;
      at = at_, to = out;
    }
    at_ = at + 1, out = to;
    return true;
  }

  // An object: visit(key) takes the value of each key, or refuses it.
  template <typename Visit>
  bool object(Visit&& visit) {
    if (!take('{')) return false;
    skip_space();
    if (take('}')) return true;
    for (;;) {
      std::string_view key;
      if (!plain_key(key)) return false;
      skip_space();
      if (!take(':')) return false;
      skip_space();
      if (!visit(key)) return false;
      skip_space();
      if (take('}')) return true;
      if (!take(',')) return false;
      skip_space();
    }
  }

  // An array: visit() takes each of its values, or refuses it.
  template <typename Visit>
  bool array(Visit&& visit) {
    if (!take('[')) return false;
    skip_space();
    if (take(']')) return true;
    for (;;) {
      if (!visit()) return false;
      skip_space();
      if (take(']')) return true;
      if (!take(',')) return false;
      skip_space();
    }
  }

  // Pass over any value. `objects` has one bit for each open bracket: set for an object.
  bool value() {
    std::uint64_t objects = 0;
    int depth = 0;
    for (;;) {
      if (at_ < end_ && (*at_ == '{' || *at_ == '[')) {  // opens, and continues with the first value inside
        if (++depth > deepest) return false;
        objects = objects << 1 | (*at_++ == '{');
        skip_space();
        if (!take(objects & 1 ? '}' : ']')) {
          if ((objects & 1) && !key()) return false;
          continue;
        }
        --depth, objects >>= 1;
      } else if (!scalar()) {
        return false;
      }
      for (;;) {  // behind a value: close brackets, or go on with the next one
        if (depth == 0) return true;
        skip_space();
        if (take(',')) {
          skip_space();
          if ((objects & 1) && !key()) return false;
          break;
        }
        if (!take(objects & 1 ? '}' : ']')) return false;
        --depth, objects >>= 1;
      }
    }
  }

 private:
  static constexpr ByteSet special{{'"', '\\', '\\', '\\'}, true};
  static constexpr std::ptrdiff_t longest_number = 300;  // Python refuses whole numbers of more than 4300 digits
  static constexpr int deepest = 64;

  // What the letter behind a backslash stands for. A table: which letter comes next cannot be guessed by a branch.
  static constexpr auto said_by = [] {
    std::array<std::uint8_t, 256> said{};
    said['"'] = '"', said['\\'] = '\\', said['/'] = '/';
    said['b'] = '\b', said['f'] = '\f', said['n'] = '\n', said['r'] = '\r', said['t'] = '\t';
    return said;
  }();

  template <bool keep>
  bool unicode(std::uint8_t*& out) {
    std::uint32_t code = 0, low = 0;
    if (!four_digits(code)) return false;
    if (code >= 0xD800 && code < 0xE000) {
      if (code >= 0xDC00 || !take('\\') || !take('u') || !four_digits(low)) return false;
      if (low < 0xDC00 || low >= 0xE000) return false;
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if constexpr (keep) out += encode_utf8(code, out);
    return true;
  }

  bool four_digits(std::uint32_t& code) {
    if (end_ - at_ < 4) return false;
    for (int i = 0; i < 4; ++i) {
      const std::uint8_t digit = *at_++;
      std::uint32_t nibble = 0;
      if (digit >= '0' && digit <= '9') nibble = digit - '0';
      else if (digit >= 'a' && digit <= 'f') nibble = digit - 'a' + 10;
      else if (digit >= 'A' && digit <= 'F') nibble = digit - 'A' + 10;
      else return false;
      code = code << 4 | nibble;
    }
    return true;
  }

  bool digits() {
    const std::uint8_t* const first = at_;
    while (at_ < end_ && *at_ >= '0' && *at_ <= '9') ++at_;
    return at_ > first;
  }

  bool number() {
    const std::uint8_t* const first = at_;
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (!digits()) return false;
    }
    return at_ - first <= longest_number;
  }

  bool word(std::string_view wanted) {
    if (static_cast<std::size_t>(end_ - at_) < wanted.size()) return false;
    if (std::memcmp(at_, wanted.data(), wanted.size()) != 0) return false;
    at_ += wanted.size();
    return true;
  }

  bool scalar() {
    std::uint8_t* nowhere = nullptr;
    if (at_ == end_) return false;
    switch (*at_) {
      case '"': ++at_; return string<false>(nowhere);
      case 't': return word("true");
      case 'f': return word("false");
      case 'n': return word("null");
      default: return number();
    }
  }

  bool key() {
    std::uint8_t* nowhere = nullptr;
    if (!take('"') || !string<false>(nowhere)) return false;
    skip_space();
    if (!take(':')) return false;
    skip_space();
    return true;
  }

  const std::uint8_t* at_;
  const std::uint8_t* const end_;
};

}  // namespace millstream
