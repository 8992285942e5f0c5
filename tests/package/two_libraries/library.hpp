// The interface of each library to its saver.
#pragma once

#include <memsaver/memsaver.hpp>

#include <cstddef>
#include <functional>

class Library {
public:
    Library() = default;
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    virtual ~Library() = default;

    virtual bool is_compiled() const = 0; // with memsaver::compiled
    virtual void write(unsigned char byte) = 0;
    virtual bool holds(unsigned char byte) = 0; // only while it is not paused
    virtual memsaver::Report pause() = 0;
    virtual memsaver::Report resume() = 0;
    virtual bool paused() = 0;
    virtual void* allocate_in_region() = 0; // the region of the calling thread
    virtual void deallocate(void* pointer) = 0;
    virtual void run_out_of_memory() = 0;
    virtual void run_in_region(const std::function<void()>& act) = 0;
    virtual bool catches_not_idle(const std::function<void()>& act) = 0;
};

namespace first {
Library& library();
}
namespace second {
Library& library();
}
