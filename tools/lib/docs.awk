# SPDX-License-Identifier: Apache-2.0
# What Doxygen reads instead of a public header. Every line keeps its number.
#
# - The comment at the top describes the file.
# - In C, a comment directly before a declaration, or after one in its line, describes it. Other
#   comments are left out. "---- NAME ----", before an empty line, begins a group of declarations; the
#   rest of that comment is the group's text.
# - Lines of a comment that are indented by three spaces, and are not in a list, are shown as they are.
# - Left out are special member functions, specializations and what is not part of the API.

{ line[NR] = $0 }

# The top, up to line n, becomes the description of the file.
function describe_file(start, mark, n,    i, text) {
  line[1] = start " @file"
  for (i = 2; i <= n; ++i) {
    if (mark == "///") sub(/^\/\//, mark, line[i])
    if (match(line[i], /Entry zone: /)) {
      text = substr(line[i], RSTART + RLENGTH)
      line[i] = mark " " toupper(substr(text, 1, 1)) substr(text, 2)
    }
  }
}

# Formulas and programs in comments: runs of lines with three spaces after the mark.
function keep_indented(mark,    i, in_list, inside, indented) {
  for (i = 1; i <= NR + 1; ++i) {
    indented = line[i] ~ ("^ *" mark "   +[^ ]")
    if (!indented) in_list = line[i] ~ ("^ *" mark " - ") || (in_list && line[i] ~ ("^ *" mark "  "))
    if (indented && !in_list && !inside) {
      match(line[i], mark)
      line[i] = substr(line[i], 1, RSTART + RLENGTH - 1) " <pre>" substr(line[i], RSTART + RLENGTH + 1)
      inside = 1
    } else if (inside && (!indented || in_list)) {
      line[i - 1] = line[i - 1] "</pre>"
      inside = 0
    }
  }
}

function cpp(    i) {
  for (i = 1; i <= NR && line[i] !~ /^#pragma once/; ++i) continue
  describe_file("///", "///", i - 1)
  for (; i <= NR; ++i) {
    if (line[i] ~ /^  ~|= delete;|operator=|\(\) = default;|&&\) noexcept;$/) line[i] = ""
    if (line[i] ~ /^template <>$|Not part of the API\.$/) line[i + 1] = line[i] = ""
  }
  keep_indented("///")
}

# The line in which the comment that begins in line i ends.
function end_of(i) {
  while (i < NR && line[i] !~ /\*\//) ++i
  return i
}

# The comment of lines i to last begins a group.
function begin_group(i, last,    name, id) {
  name = line[i]
  gsub(/^\/\* ---- | -+( \*\/)?$/, "", name)
  id = tolower(name)
  gsub(/[^a-z0-9]/, "_", id)
  line[i] = (groups++ ? "/** @} */ " : "") "/** @defgroup c_" id " C: " name
  if (last == i) line[i + 1] = " * @{ */"
  else sub(/\*\//, "* @{ */", line[last])
}

function c(    i, last, in_body) {
  last = end_of(2)
  describe_file("/**", " *", last)
  for (i = last + 1; i <= NR; ++i) {
    if (line[i] ~ /^static inline/) in_body = 1
    if (line[i] ~ /^}/) in_body = 0
    sub(/^  size_t struct_size;$/, "& /* sizeof the struct */", line[i])
    if (in_body || line[i] !~ /\/\*/) continue
    last = end_of(i)
    if (line[i] ~ /^\/\* ---- /) begin_group(i, last)
    else if (line[i] !~ /^ *\/\*/) sub(/\/\*/, "/**<", line[i])
    else if (line[last + 1] !~ /^(#include.*)?$/) sub(/\/\*/, "/**", line[i])
    i = last
  }
  for (i = 1; i <= NR; ++i) gsub(/ \. /, " · ", line[i])
  keep_indented(" [*]")
  if (groups) line[NR] = line[NR] " /** @} */"
}

END {
  if (FILENAME ~ /\.hpp$/) cpp()
  else c()
  for (i = 1; i <= NR; ++i) print line[i]
}
