// Work of some other device, which is done when the test says so. Does not know what waits for it.
#pragma once

#include "memsaver/core/order.hpp"

namespace test {

struct Elsewhere : memsaver::detail::WorkMark {
    memsaver::Status query(bool& passed) const noexcept override {
        passed = done;
        return status;
    }
    memsaver::Status wait() const noexcept override { return status; }
    bool done = false;
    memsaver::Status status;
};

} // namespace test
