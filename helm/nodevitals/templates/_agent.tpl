{{/*
The keys of one entry of `nodes`: those of nodeDefaults, of the entry that it inherits, its own.
In: dict "root" $ "name" NAME. Out: JSON.
*/}}
{{- define "nodevitals.entry" -}}
{{- $own := get .root.Values.nodes .name -}}
{{- $base := dict -}}
{{- with $own.inherits -}}
{{- if not (hasKey $.root.Values.nodes .) -}}
{{- fail (printf "nodes.%s.inherits: there is no nodes.%s" $.name .) -}}
{{- end -}}
{{- with (get $.root.Values.nodes .).inherits -}}
{{- fail (printf "nodes.%s.inherits: nodes.%s inherits as well, and its keys would be lost: name %s here, and repeat the keys of %s" $.name $own.inherits . $own.inherits) -}}
{{- end -}}
{{- $base = omit (get $.root.Values.nodes .) "enabled" "inherits" -}}
{{- end -}}
{{- $entry := mergeOverwrite (deepCopy .root.Values.nodeDefaults) (deepCopy $base) (deepCopy $own) -}}
{{- if and $entry.fabric .root.Values.fabric.enabled -}}
{{- $_ := set $entry "hostPID" true -}}
{{- $_ := set $entry "hostNetwork" true -}}
{{- $_ := set $entry "capabilities" (append $entry.capabilities "SYS_PTRACE" | uniq) -}}
{{- else -}}
{{- $_ := set $entry "fabric" false -}}
{{- end -}}
{{- $health := $entry.hardwareHealth -}}
{{- if or (ne $health.disks "none") $health.transceivers -}}
{{- if ne (int $entry.runAsUser) 0 -}}
{{- fail (printf "nodes.%s.hardwareHealth: user %d gets no capability from Kubernetes: set runAsUser to 0" .name (int $entry.runAsUser)) -}}
{{- end -}}
{{- $kept := list -}}
{{- if ne $health.disks "none" -}}
{{- $kept = append $kept "disks=SYS_ADMIN,SYS_RAWIO" -}}
{{- $_ := set $entry "capabilities" (concat $entry.capabilities (list "SYS_ADMIN" "SYS_RAWIO") | uniq) -}}
{{- if eq $health.disks "privileged" -}}
{{- $_ := set $entry "privileged" true -}}
{{- end -}}
{{- end -}}
{{- if $health.transceivers -}}
{{- $kept = append $kept "transceivers=NET_ADMIN" -}}
{{- $_ := set $entry "capabilities" (append $entry.capabilities "NET_ADMIN" | uniq) -}}
{{- $_ := set $entry "hostNetwork" true -}}
{{- end -}}
{{- if not (hasKey $entry.env "NODEVITALS_CAPABILITIES") -}}
{{- $_ := set $entry.env "NODEVITALS_CAPABILITIES" (join " " $kept) -}}
{{- end -}}
{{- end -}}
{{- if and (ne (int $entry.runAsUser) 0) $entry.capabilities -}}
{{- fail (printf "nodes.%s: user %d gets no capability from Kubernetes: set capabilities to [] or runAsUser to 0" .name (int $entry.runAsUser)) -}}
{{- end -}}
{{- if and (ne (int $entry.runAsUser) 0) (eq $entry.state.type "hostPath") -}}
{{- fail (printf "nodes.%s: the node's %s belongs to root, and user %d cannot write to it: set state.type to emptyDir or none" .name $entry.state.path (int $entry.runAsUser)) -}}
{{- end -}}
{{- range $capability := $entry.capabilities -}}
{{- if hasPrefix "CAP_" $capability -}}
{{- fail (printf "nodes.%s.capabilities: Kubernetes writes %s as %s" $.name $capability (trimPrefix "CAP_" $capability)) -}}
{{- end -}}
{{- end -}}
{{- toJson $entry -}}
{{- end -}}

{{/* The names of the entries of `nodes` that are enabled, as a JSON list. */}}
{{- define "nodevitals.entries" -}}
{{- $names := list -}}
{{- range $name, $entry := .Values.nodes -}}
{{- if ne (toString $entry.enabled) "false" -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/*
What the schema cannot say. Two agents on a node, as far as labels show it: all that selects one entry
selects another as well.
*/}}
{{- define "nodevitals.checkNodes" -}}
{{- if and .Values.agent.web.tls (not .Values.agent.web.secret) -}}
{{- fail "agent.web.tls: name the Secret of the certificate in agent.web.secret" -}}
{{- end -}}
{{- $entries := dict -}}
{{- range $name := include "nodevitals.entries" . | fromJsonArray -}}
{{- $_ := set $entries $name (include "nodevitals.entry" (dict "root" $ "name" $name) | fromJson) -}}
{{- end -}}
{{- range $name, $entry := $entries -}}
{{- range $other, $wider := omit $entries $name -}}
{{- $same := or (not $wider.affinity) (deepEqual $wider.affinity $entry.affinity) -}}
{{- $own := $entry.nodeSelector | default dict -}}
{{- $both := merge ($wider.nodeSelector | default dict | deepCopy) $own -}}
{{- if and $same (deepEqual $both $own) (deepEqual $wider.tolerations $entry.tolerations) -}}
{{- fail (printf "nodes.%s and nodes.%s: the nodes of %s would have two agents. Disable one, or give %s a nodeSelector or an affinity that excludes them" $name $other $name $other) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
nodevitals.yaml of one entry: agent.config, under it what the chart itself knows, over it the
config of the entry. In: dict "root" $ "name" NAME "entry" ENTRY.
*/}}
{{- define "nodevitals.config" -}}
{{- $root := .root -}}
{{- $chart := dict -}}
{{- if eq .entry.state.type "none" -}}
{{- $_ := set $chart "state_directory" nil -}}
{{- end -}}
{{- if .entry.fabric -}}
{{- $folder := "/etc/nodevitals-fabric" -}}
{{- $tls := dict "cert_file" (printf "%s/tls.crt" $folder) "key_file" (printf "%s/tls.key" $folder) "ca_file" (printf "%s/ca.crt" $folder) -}}
{{- $fabric := dict "enabled" "auto" "token_file" "/etc/nodevitals-token/token" "tls" $tls "listen_address" ":9856" -}}
{{- with $root.Values.fabric.peers -}}
{{- $_ := set $fabric "static" (list (dict "targets" .)) -}}
{{- end -}}
{{- if $root.Values.hub.enabled -}}
{{- $names := include "nodevitals.hubNames" $root | fromJsonArray -}}
{{- $_ := set $fabric "hub" (dict "token_file" "/etc/nodevitals-hub-token/token" "names" $names) -}}
{{- end -}}
{{- $_ := set $chart "probes" (dict "fabric" $fabric) -}}
{{- end -}}
{{- $config := mergeOverwrite $chart ($root.Values.agent.config | default dict | deepCopy) (.entry.config | default dict | deepCopy) -}}
{{- if and $root.Values.fabric.enabled (not .entry.fabric) -}}
{{- $_ := unset (get $config "probes" | default dict) "fabric" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "nodevitals.image" -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag }}{{- end -}}
{{- end -}}

{{- define "nodevitals.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "nodevitals.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* A probe of the kubelet: the keys of the values, and where to ask. */}}
{{- define "nodevitals.httpProbe" -}}
httpGet:
  path: {{ .path }}
  port: {{ default "metrics" .port }}
  {{- if .tls }}
  scheme: HTTPS
  {{- end }}
{{ toYaml .probe }}
{{- end -}}
