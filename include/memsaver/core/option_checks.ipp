// Definitions of option_checks.hpp.
#pragma once

#include "memsaver/core/option_checks.hpp"

namespace memsaver::inline v0_3::detail {

MEMSAVER_INLINE void refuse_option(const char* option, const std::string& value, const std::string& valid) {
    misuse({option, " is ", value, "; valid: ", valid});
}

} // namespace memsaver::inline v0_3::detail
