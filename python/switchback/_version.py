# SPDX-License-Identifier: Apache-2.0
"""The package's version. It is independent of the library's version. _abi.py has the required ABI."""

__version__ = "0.1.0"
