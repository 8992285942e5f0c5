// Refusals of options that cannot mean anything.
#pragma once

#include "memsaver/core/error.hpp"

#include <string>

namespace memsaver::inline v0_3::detail {

/// Throws Misuse such as "HostBackup::threads is 0; valid are 1 to 1024".
[[noreturn]] void refuse_option(const char* option, const std::string& value, const std::string& valid);

/// `end`: the number of enumerators.
template <class Enumeration>
void require_enumerator(const char* option, Enumeration value, int end) {
    const auto number = static_cast<long long>(value);
    if (number < 0 || number >= end)
        refuse_option(option, text_of({in_digits(number)}), text_of({"the enumerators, 0 to ", in_digits(end - 1)}));
}

} // namespace memsaver::inline v0_3::detail

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/option_checks.ipp"
#endif
