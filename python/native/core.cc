// libmuster.so is the archive libmuster.a, whole. A library wants a source of its own.
