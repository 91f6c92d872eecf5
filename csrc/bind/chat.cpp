// bind/chat.cpp: rows of plain conversations for millstream.chats. All of it works without the interpreter's lock.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/module.h"
#include "core/chat/chats.h"

using namespace nb::literals;
using namespace millstream;

namespace {

using Raw = Array<const std::uint8_t>;
using Ends = Array<const std::int64_t>;
using Shapes = std::vector<const ChatShape*>;
// (kind, opens, straddles, weight, number, text)
using PartFields = std::tuple<int, bool, bool, float, std::uint32_t, nb::bytes>;

ChatShape shape_of(const std::vector<PartFields>& parts, bool verbatim) {
  ChatShape shape{{}, verbatim};
  for (const auto& [kind, opens, straddles, weight, number, text] : parts) {
    if (kind < 0 || kind > 2) throw std::invalid_argument("a part is a text, a content or a control token");
    shape.parts.push_back({static_cast<ChatShape::Kind>(kind), opens, straddles, weight, number, {text.c_str(), text.size()}});
  }
  return shape;
}

// Numbers of shapes are of messages; the maker of a shape counts them as the rows do.
void check_messages(const ChatRows& rows, const Shapes& shapes) {
  if (shapes.size() != rows.shapes().size()) throw std::invalid_argument("one for each shape");
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (const auto& part : shapes[i]->parts)
      if (part.kind == ChatShape::Kind::content && part.number >= rows.shapes()[i].size())
        throw std::invalid_argument("the shape has no such message");
  }
}

}  // namespace

void register_chat(nb::module_& m) {
  nb::class_<ChatNames>(m, "ChatNames", "What rows of conversations are written in.")
      .def("__init__", [](ChatNames* self, std::string messages, std::string role, std::string content,
                          std::vector<std::string> besides, std::vector<std::pair<std::string, std::string>> roles,
                          std::vector<std::string> looked_for) {
        new (self) ChatNames{std::move(messages), std::move(role), std::move(content), std::move(besides), {}, std::move(looked_for)};
        for (auto& [name, letter] : roles) {
          if (letter.size() != 1) throw std::invalid_argument("a role has one letter");
          self->roles.emplace_back(std::move(name), letter[0]);
        }
      }, nb::kw_only(), "messages"_a, "role"_a, "content"_a, "besides"_a, "roles"_a, "looked_for"_a);
  nb::class_<ChatShape>(m, "ChatShape", "What a format makes of conversations in which the same roles speak.")
      .def("__init__", [](ChatShape* self, const std::vector<PartFields>& parts, bool verbatim) {
        new (self) ChatShape(shape_of(parts, verbatim));
      }, "parts"_a, "verbatim"_a,
         "Parts: (0 text, 1 content, 2 control token; opens a run; straddles; weight; message or id; text).");
  nb::class_<ChatRows>(m, "ChatRows", "Plain conversations of a block of JSON rows.")
      .def("__init__", [](ChatRows* self, Raw text, Ends ends, const ChatNames& names) {
        nb::gil_scoped_release unlocked;  // the arguments keep their buffers alive
        new (self) ChatRows(view(text), view(ends), names);
      }, "text"_a, "ends"_a, "names"_a)
      .def_prop_ro("shapes", &ChatRows::shapes, "Who speaks when, a letter for each message: every shape that occurs.")
      .def("lay", [](ChatRows& self, const std::vector<ChatShape*>& given) {
        const Shapes shapes(given.begin(), given.end());
        check_messages(self, shapes);
        std::string text;
        std::vector<std::int64_t> runs;
        {
          nb::gil_scoped_release unlocked;
          self.lay(shapes, text, runs);
        }
        return std::tuple(made(std::move(text)), made(std::move(runs)));
      }, "shapes"_a, "Put rows into their shapes (one without parts leaves them out): the runs to encode, end to end, and their ends.")
      .def("weigh", [](const ChatRows& self, const std::vector<ChatShape*>& given, Array<const std::uint32_t> ids, Ends ends,
                       Array<const std::uint16_t> sizes, Ends altered, std::size_t most_tokens, bool keep_untrained, bool keep_straddlers) {
        const Shapes shapes(given.begin(), given.end());
        check_messages(self, shapes);
        ChatTokens tokens;
        {
          nb::gil_scoped_release unlocked;
          tokens = self.weigh(shapes, {view(ids), view(ends), view(sizes), view(altered)}, {most_tokens, keep_untrained, keep_straddlers});
        }
        return std::tuple(made(std::move(tokens.ids)), made(std::move(tokens.weights)), made(std::move(tokens.ends)),
                              made(std::move(tokens.places)), tokens.straddlers);
      }, "shapes"_a, "ids"_a, "ends"_a, "sizes"_a, "altered"_a, nb::kw_only(), "most_tokens"_a, "keep_untrained"_a, "keep_straddlers"_a,
         "The tokens of rows, with control tokens and weights: (ids, weights, ends, places, straddlers).");
}
