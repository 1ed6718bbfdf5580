//go:build tools

package isthmus

import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/hashicorp/golang-lru/v2"
	_ "github.com/klauspost/compress/gzip"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/spf13/cobra"
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "google.golang.org/protobuf/encoding/protowire"
	_ "gopkg.in/evanphx/json-patch.v4"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	_ "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	_ "k8s.io/streaming/pkg/httpstream"
	_ "k8s.io/utils/third_party/forked/golang/btree"
	_ "pgregory.net/rapid"
	_ "sigs.k8s.io/yaml"
)
