// Empty: this program only holds the compiled headers that all tests share.
