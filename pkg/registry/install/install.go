// Package install puts into the control plane what the endpoint serves beyond
// Kubernetes' own kinds: our namespace, CRDs, and the default policies.
//
//	embedded YAML -> decode -> create or update -> wait until CRDs serve
//
// It runs at every start and converges: CRDs follow the binary, default
// policies are created only where they are missing, so that an operator's
// edits and removals survive (removal leaves a tombstone, see Defaults).
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
)

// Namespace holds member credentials and our own state.
const Namespace = "isthmus-system"

// FieldManager of everything that is installed.
const FieldManager = "isthmus-install"

// installed is the ConfigMap that remembers which default policies have been
// created once, so that a policy that an operator removed stays removed.
const installed = "isthmus-installed-defaults"

const (
	retryInterval = 250 * time.Millisecond
	crdTimeout    = 60 * time.Second
)

// Installer writes to the control plane with a loopback client.
type Installer struct {
	core    kubernetes.Interface
	crds    apiextensions.Interface
	dynamic dynamic.Interface
}

// New makes an installer.
func New(loopback *rest.Config) (*Installer, error) {
	core, errCore := kubernetes.NewForConfig(loopback)
	crds, errCRDs := apiextensions.NewForConfig(loopback)
	dyn, errDynamic := dynamic.NewForConfig(loopback)
	if err := errors.Join(errCore, errCRDs, errDynamic); err != nil {
		return nil, fmt.Errorf("clients of the installer: %w", err)
	}
	return &Installer{core: core, crds: crds, dynamic: dyn}, nil
}

// EnsureNamespace creates our namespace. The control plane may still be
// starting, so refusals are retried until ctx ends.
func (i *Installer) EnsureNamespace(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	return retry(ctx, "namespace "+Namespace, func(ctx context.Context) error {
		_, err := i.core.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{FieldManager: FieldManager})
		return ignoreExists(err)
	})
}

// CRDs installs every CustomResourceDefinition of the file system and waits
// until all are served.
func (i *Installer) CRDs(ctx context.Context, files fs.FS) error {
	objects, err := Decode(files)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := retry(ctx, "CRD "+o.GetName(), func(ctx context.Context) error { return i.applyCRD(ctx, o) }); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, crdTimeout)
	defer cancel()
	for _, o := range objects {
		if err := i.awaitEstablished(ctx, o.GetName()); err != nil {
			return err
		}
	}
	return nil
}

func (i *Installer) applyCRD(ctx context.Context, o *unstructured.Unstructured) error {
	gvr := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	_, err := i.dynamic.Resource(gvr).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	return err
}

func (i *Installer) awaitEstablished(ctx context.Context, name string) error {
	err := wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		crd, err := i.crds.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // retried until the deadline, which names the CRD
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("CRD %s is not served: %w", name, err)
	}
	return nil
}

// Defaults creates the objects of the file system that have never been created
// before.
func (i *Installer) Defaults(ctx context.Context, files fs.FS) error {
	objects, err := Decode(files)
	if err != nil {
		return err
	}
	done, err := i.installedDefaults(ctx)
	if err != nil {
		return err
	}
	for _, o := range objects {
		key := o.GetKind() + "." + o.GetName()
		if done.Data[key] != "" {
			continue
		}
		if err := retry(ctx, key, func(ctx context.Context) error { return i.create(ctx, o) }); err != nil {
			return err
		}
		if done.Data == nil {
			done.Data = map[string]string{}
		}
		done.Data[key] = time.Now().UTC().Format(time.RFC3339)
		if done, err = i.core.CoreV1().ConfigMaps(Namespace).Update(ctx, done, metav1.UpdateOptions{FieldManager: FieldManager}); err != nil {
			return fmt.Errorf("remember that %s is installed: %w", key, err)
		}
		klog.FromContext(ctx).Info("Installed a default", "object", key)
	}
	return nil
}

func (i *Installer) installedDefaults(ctx context.Context) (*corev1.ConfigMap, error) {
	client := i.core.CoreV1().ConfigMaps(Namespace)
	cm, err := client.Get(ctx, installed, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cm, err = client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: installed, Namespace: Namespace}}, metav1.CreateOptions{FieldManager: FieldManager})
	}
	if err != nil {
		return nil, fmt.Errorf("read which defaults are installed: %w", err)
	}
	return cm, nil
}

func (i *Installer) create(ctx context.Context, o *unstructured.Unstructured) error {
	groups, err := restmapper.GetAPIGroupResources(i.core.Discovery())
	if err != nil {
		return fmt.Errorf("discover the control plane: %w", err)
	}
	gvk := o.GroupVersionKind()
	mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return fmt.Errorf("find the resource of %s: %w", gvk, err)
	}
	var client dynamic.ResourceInterface = i.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		client = i.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	_, err = client.Create(ctx, o, metav1.CreateOptions{FieldManager: FieldManager})
	return ignoreExists(err)
}

// Decode reads all YAML documents of a file system, in the order of the file
// names.
func Decode(files fs.FS) ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list embedded manifests: %w", err)
	}
	sort.Strings(names)
	var objects []*unstructured.Unstructured
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read embedded manifest: %w", err)
		}
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			o := &unstructured.Unstructured{}
			err := decoder.Decode(o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("decode %s: %w", name, err)
			}
			if len(o.Object) > 0 {
				objects = append(objects, o)
			}
		}
	}
	return objects, nil
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// retry repeats until success or the end of ctx, and says then what failed last.
func retry(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, retryInterval, crdTimeout, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return false, err // the manifest itself is wrong
		}
		if ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("install %s: %w", what, errors.Join(err, last))
	}
	return nil
}
