// The minimal program.
#include <memsaver/core/core.hpp>
#include <memsaver/driver/driver.hpp>

#include <iostream>

int main() {
    const memsaver::CudaAvailability found = memsaver::CudaDriver::available();
    std::cout << "memsaver " << memsaver::version.major << '.' << memsaver::version.minor << ", "
              << (found ? "a GPU" : found.reason) << '\n';
}
