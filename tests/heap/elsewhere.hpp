// Work of another device, which completes when the test allows it. Independent of waiters.
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
