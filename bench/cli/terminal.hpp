// SPDX-License-Identifier: Apache-2.0
// Bench: output for people: the width of the terminal, and whether the text arrived.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace switchback::bench {

/// The columns of the terminal that a stream writes to; 0 without one, so that output piped to a
/// file does not depend on a window. COLUMNS in the environment overrides both.
std::size_t terminal_columns(std::FILE* stream);

/// Flushes standard output. Throws Error(io_error) with the system's reason if some of it could not
/// be written: a full disk, a closed pipe. Every command ends with this.
void flush_stdout();

/// Formats help for `columns` columns. A line that is too long is broken between words; its
/// continuation is indented to the line's description (`description_column`, if one begins there),
/// otherwise by four columns more than the line. Paragraphs of a footer, which are not indented,
/// are reflowed.
std::string wrapped_help(std::string_view text, std::size_t columns,
                         std::size_t description_column);
std::string filled_paragraphs(std::string_view text, std::size_t columns);

}  // namespace switchback::bench
