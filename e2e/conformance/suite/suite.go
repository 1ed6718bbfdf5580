// Package suite pins Kubernetes' own end-to-end suite, so that it is built from
// the module cache in the version that the members run. It holds no code of its
// own: the suite is compiled as the test of k8s.io/kubernetes/test/e2e.
package suite

import (
	_ "k8s.io/kubernetes/test/e2e" // the suite; its specs register themselves in its test
)
