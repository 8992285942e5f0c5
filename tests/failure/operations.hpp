// All groups of operations of the public interface.
#pragma once

#include "failure/operations_arriving.hpp"
#include "failure/operations_devices.hpp"
#include "failure/operations_elastic.hpp"
#include "failure/operations_ending.hpp"
#include "failure/operations_graphs.hpp"
#include "failure/operations_hooked.hpp"
#include "failure/operations_loading.hpp"
#include "failure/operations_memory.hpp"
#include "failure/operations_pausing.hpp"
#include "failure/operations_residency.hpp"

namespace test {

/// Returns the repeatable operations on one device.
inline std::vector<Operation> repeatable() {
    std::vector<Operation> all;
    for (const auto& group : {allocating(), freeing(), pausing(), resuming(), arriving(), ending(), graphs(),
                              workspaces(), elastic(), exchanging(), with_hooks(), residency(), loading()}) {
        all.insert(all.end(), group.begin(), group.end());
    }
    return all;
}

/// Returns the operations with these names; each must exist.
inline std::vector<Operation> only(const std::vector<Operation>& all, std::initializer_list<std::string_view> names) {
    std::vector<Operation> some;
    for (const std::string_view name : names) {
        for (const Operation& operation : all) {
            if (operation.name == name) some.push_back(operation);
        }
    }
    REQUIRE(some.size() == names.size());
    return some;
}
} // namespace test
