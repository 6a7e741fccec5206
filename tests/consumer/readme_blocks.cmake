# SPDX-License-Identifier: Apache-2.0
# readme_blocks(FILE LANGUAGE OUT): finds the fenced code blocks of a language in a Markdown file
# that begin with an #include. These are whole programs and not fragments.
function(readme_blocks file language out)
  file(READ "${file}" _text)
  # Semicolons and brackets are replaced, because CMake splits lists at them, and programs are full
  # of both.
  string(REPLACE ";" "<semicolon>" _text "${_text}")
  string(REPLACE "[" "<bracket>" _text "${_text}")
  string(REPLACE "]" "<tekcarb>" _text "${_text}")
  string(REGEX MATCHALL "```${language}\n#include[^`]*```" _blocks "${_text}")
  set(_programs "")
  foreach(_block IN LISTS _blocks)
    string(REGEX REPLACE "^```${language}\n(.*)```$" "\\1" _block "${_block}")
    list(APPEND _programs "${_block}")
  endforeach()
  set(${out} "${_programs}" PARENT_SCOPE)
endfunction()
# readme_program(BLOCK OUT): the original text of a program that readme_blocks() found.
function(readme_program block out)
  string(REPLACE "<semicolon>" ";" block "${block}")
  string(REPLACE "<bracket>" "[" block "${block}")
  string(REPLACE "<tekcarb>" "]" block "${block}")
  set(${out} "${block}" PARENT_SCOPE)
endfunction()
