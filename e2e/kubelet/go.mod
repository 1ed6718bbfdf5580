module github.com/isthmus-dev/isthmus/e2e/kubelet

go 1.26.0

require (
	github.com/creack/pty v1.1.24 // indirect
	k8s.io/api v0.37.2 // indirect
	k8s.io/apimachinery v0.37.2 // indirect
	k8s.io/cri-streaming v0.37.2 // indirect
	k8s.io/kubelet v0.37.2 // indirect
	k8s.io/streaming v0.37.2 // indirect
)
