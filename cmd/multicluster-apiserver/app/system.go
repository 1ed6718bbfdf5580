package app

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
	"github.com/isthmus-dev/isthmus/pkg/registry/controllers"
	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
)

func subcommands() []*cobra.Command { return nil }

type system struct {
	router   *proxy.Router
	loopback *rest.Config
}

type stub struct{}

func (stub) ServeHTTP(w http.ResponseWriter, r *http.Request) { http.Error(w, "no gateway", 503) }
func (stub) ServeClusterProxy(w http.ResponseWriter, r *http.Request, cluster, path string) {
	http.Error(w, "no gateway", 503)
}

func newSystem(o *Options, files pki.Files, config *kubeapiserver.Config) (*system, error) {
	return &system{router: &proxy.Router{Kinds: proxy.NewKinds(proxy.DefaultClasses()), Gateway: stub{}},
		loopback: config.KubeAPIs.ControlPlane.Generic.LoopbackClientConfig}, nil
}

func (s *system) run(ctx context.Context, ca []byte) error {
	return controllers.Run(ctx, s.loopback, ca)
}

func (s *system) readyChecks() []healthz.HealthChecker { return nil }
