// A Kubernetes control plane in one binary: the first argument chooses the component, the rest are its own flags.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var components = map[string]func() *cobra.Command{
	"apiserver":   apiserver.NewAPIServerCommand,
	"controllers": controllers.NewControllerManagerCommand,
	"scheduler":   func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"etcd":        etcd,
	"kubectl":     func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() },
}

// etcd reads its arguments itself, and never returns when it was started as it should be.
func etcd() *cobra.Command {
	return &cobra.Command{DisableFlagParsing: true, Run: func(*cobra.Command, []string) { etcdmain.Main(os.Args) }}
}

func main() {
	if len(os.Args) < 2 || components[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: controlplane etcd|apiserver|controllers|scheduler|kubectl [flags]")
		os.Exit(2)
	}
	name := os.Args[1]
	os.Args = append([]string{name}, os.Args[2:]...) // etcd and kubectl read them themselves
	command := components[name]()
	command.SetArgs(os.Args[1:])
	os.Exit(cli.Run(command))
}
