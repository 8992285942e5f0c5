// The unique_ptr of the inside.
#include "memsaver/core/pointers.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <utility>

namespace core_pointers_test {
using memsaver::detail::UniquePtr;

struct Base {
    explicit Base(int& lives) : lives_{lives} { ++lives_; }
    virtual ~Base() { --lives_; }
    int& lives_;
};
struct Derived : Base {
    using Base::Base;
};

TEST_CASE("an owner deletes its object once, whoever holds it last") {
    int lives = 0;
    {
        UniquePtr<Base> empty;
        UniquePtr<Base> one = UniquePtr<Derived>::make(lives);
        REQUIRE(one != nullptr);
        UniquePtr<Base> two{std::move(one)};
        CHECK(one == nullptr);
        CHECK(&*two == two.get());
        empty = std::move(two);
        CHECK(lives == 1);
        empty = UniquePtr<Base>::make(lives); // the old one goes
        CHECK(lives == 1);
        empty.reset(new Base{lives});
        CHECK(lives == 1);
        empty = nullptr;
        CHECK(lives == 0);
        empty = UniquePtr<Base>::make(lives);
        const UniquePtr<Base> back{empty.release()};
        CHECK(!empty);
    }
    CHECK(lives == 0);
    std::shared_ptr<Base> shared = UniquePtr<Derived>::make(lives);
    CHECK(lives == 1);
    shared.reset();
    CHECK(lives == 0);
}

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
