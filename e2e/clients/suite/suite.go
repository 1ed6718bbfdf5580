// Package suite pins clients and suites that are not the product's, so that
// they are built from the module cache in fixed versions: helm, and the tests of
// controller-runtime's cache and client. It holds no code of its own.
package suite

import (
	_ "sigs.k8s.io/controller-runtime/pkg/cache"  // its tests are built
	_ "sigs.k8s.io/controller-runtime/pkg/client" // its tests are built
)
