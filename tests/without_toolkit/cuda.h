// Stands before the CUDA toolkit's header, for tests of builds without one on machines where compilers find it by
// themselves: defines nothing, as an unusably old one.
