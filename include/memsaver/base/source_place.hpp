// A place in source code. The standard's source_location is missing from clang 14; these builtins are everywhere.
#pragma once

#include <string>

namespace memsaver::inline v0_1 {

struct SourcePlace {
    const char* file = "";
    const char* function = "";
    unsigned line = 0;

    /// As a default argument: the place of the call that left it out.
    static constexpr SourcePlace here(const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION(),
                                      unsigned line = static_cast<unsigned>(__builtin_LINE())) noexcept {
        return {file, function, line};
    }

    [[nodiscard]] std::string text() const { return std::string{file} + ':' + std::to_string(line); }
};

} // namespace memsaver::inline v0_1
