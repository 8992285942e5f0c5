// The list of what a GPU would have punished, or silently got wrong, for tests to read.
// Not thread safe: its machine's lock guards it.
#pragma once

#include "memsaver/base/base.hpp"
#include "memsaver/driver/host_range.hpp"

#include <string>
#include <vector>

namespace memsaver::inline v0_1 {

class HostViolations {
public:
    void note(const char* what, HostRange where) noexcept {
        try {
            texts_.push_back(std::string{what} + " (" + format_bytes(where.bytes) + " at " +
                             format_address(where.address) + ')');
        } catch (...) { // no memory for the text: the status, or the lost machine, still tells
        }
    }

    [[nodiscard]] const std::vector<std::string>& texts() const noexcept { return texts_; }

private:
    std::vector<std::string> texts_;
};

} // namespace memsaver::inline v0_1
