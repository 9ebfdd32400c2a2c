// A header of the shim: a change of it is a change of the shim.
#define FAKE_ABI 1
