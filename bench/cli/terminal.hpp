// SPDX-License-Identifier: Apache-2.0
// Bench: where text for people goes: how wide that is, and whether it arrived.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace switchback::bench {

/// The columns of the terminal behind a stream; 0 where there is none, so that what is piped to a
/// file does not depend on a window. COLUMNS in the environment counts before either.
std::size_t terminal_columns(std::FILE* stream);

/// Sends what was printed on its way. Throws Error(io_error) with the system's reason if standard
/// output did not take all of it: a full disk, a closed pipe. Every command ends with this.
void flush_stdout();

/// Help for `columns` columns. A line that is too long is broken between words; what follows is
/// indented as far as the line's description (`description_column`, where one begins there), else
/// as far as the line and four columns more. Paragraphs of a footer, which are not indented, are
/// filled anew.
std::string wrapped_help(std::string_view text, std::size_t columns,
                         std::size_t description_column);
std::string filled_paragraphs(std::string_view text, std::size_t columns);

}  // namespace switchback::bench
