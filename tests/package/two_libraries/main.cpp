// Three savers in one process, in the program and in two libraries, are independent; an exception thrown by one is
// caught by its type in another.
#include "library.hpp"

#include <cstddef>
#include <iostream>
#include <string>

using namespace memsaver;

namespace {

bool good = true;

void expect(bool holds, const char* what) {
    if (!holds) std::cout << "not so: " << what << '\n';
    good = good && holds;
}

/// Returns whether `act` throws an `E` whose text contains `part`.
template <class E, class Act>
bool throws(Act&& act, const std::string& part) {
    try {
        act();
    } catch (const E& error) {
        return std::string{error.what()}.find(part) != std::string::npos;
    } catch (...) {
    }
    return false;
}

void each_pauses_its_own(Library& one, Library& other) {
    one.write(1);
    other.write(2);
    expect(one.pause().released_bytes >= 3_MiB, "a library's pause gives its pages back");
    expect(one.paused() && !other.paused(), "it pauses its own tag, which the other has by the same name");
    expect(other.holds(2), "the other's bytes stay");
    other.write(3);
    (void)other.pause();
    expect(one.resume().mapped_bytes >= 3_MiB, "a resume brings them back");
    expect(other.paused(), "and not the other's");
    (void)other.resume();
    expect(one.holds(1) && other.holds(3), "both have their bytes");
}

void regions_are_their_savers(Library& one, Library& other) {
    MemorySaver saver{HostDriver{64_MiB}};
    {
        const auto region = saver.region("own");
        expect(throws<Misuse>([&] { (void)one.allocate_in_region(); }, "no open region"),
               "the program's is not a library's");
        void* const block = saver.allocate(1000);
        expect(throws<Misuse>([&] { one.deallocate(block); }, "no tag of this saver"), "nor are its blocks");
        saver.deallocate(block);
    }
    one.run_in_region([&] {
        one.deallocate(one.allocate_in_region());
        expect(throws<Misuse>([&] { (void)other.allocate_in_region(); }, "no open region"),
               "a library's is not the other's");
        expect(throws<Misuse>([&] { (void)saver.allocate(1); }, "no open region"), "nor the program's");
    });
}

void exceptions_cross(Library& library) {
    expect(throws<OutOfMemory>([&] { library.run_out_of_memory(); }, "own"), "OutOfMemory is caught by its type");
    expect(throws<Error>([&] { library.run_out_of_memory(); }, "own"), "and by its base");
    expect(library.catches_not_idle([] { throw NotIdle{"the program's"}; }),
           "a library catches what the program throws");
    expect(throws<Misuse>([&] { library.run_in_region([] { throw Misuse{"through"}; }); }, "through"),
           "and lets pass what is not for it");
}

} // namespace

int main() {
    Library& one = first::library();
    Library& other = second::library();
    expect(one.is_compiled() && other.is_compiled() == SECOND_IS_COMPILED, "each has the form that it links");
    each_pauses_its_own(one, other);
    each_pauses_its_own(other, one);
    regions_are_their_savers(one, other);
    regions_are_their_savers(other, one);
    exceptions_cross(one);
    exceptions_cross(other);
    return good ? 0 : 1;
}
