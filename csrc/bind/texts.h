// bind/texts.h: texts end to end, as the bindings of text and filter take them.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bind/module.h"

using Texts = Array<const std::uint8_t>;
using Ends = Array<const std::int64_t>;

// Calls visit(i, text) for each text of a block, without the GIL.
template <typename Visit>
void for_each_text(const Texts& text, const Ends& ends, Visit visit) {
  const std::string_view all(reinterpret_cast<const char*>(text.data()), text.size());
  std::size_t begin = 0;
  nb::gil_scoped_release unlocked;  // the arguments keep their buffers alive
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const auto end = static_cast<std::size_t>(ends(i));
    if (end < begin || end > all.size()) throw std::invalid_argument("ends must rise and stay inside the text");
    visit(i, all.substr(begin, end - begin));
    begin = end;
  }
}

inline void need(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

using Names = std::vector<std::string>;

// The texts that a rule has written end to end, as bytes.
inline nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }
