// The unique_ptr of the inside.
#include "memsaver/core/pointers.hpp"

#include <doctest/doctest.h>

#include <utility>

namespace core_pointers_test {
using memsaver::detail::UniquePtr;

// A list deletes its old head after it has taken the next one out of it.
TEST_CASE("an owner inside the object that it replaces") {
    struct Node {
        UniquePtr<Node> next;
    };
    auto head = UniquePtr<Node>::make();
    head->next = UniquePtr<Node>::make();
    Node* const second = head->next.get();
    head = std::move(head->next);
    CHECK(head.get() == second);
    UniquePtr<Node>& itself = head;
    head = std::move(itself);
    CHECK(head.get() == second);
}
} // namespace core_pointers_test
