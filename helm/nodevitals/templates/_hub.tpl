{{- define "nodevitals.hubName" -}}
{{- include "nodevitals.fullname" . }}-hub
{{- end -}}

{{- define "nodevitals.hubLabels" -}}
{{ include "nodevitals.selectorLabels" . }}
app.kubernetes.io/component: hub
{{- end -}}

{{- define "nodevitals.hubServiceAccountName" -}}
{{- $account := .Values.hub.serviceAccount -}}
{{- if $account.create -}}
{{- default (include "nodevitals.hubName" .) $account.name -}}
{{- else -}}
{{- default "default" $account.name -}}
{{- end -}}
{{- end -}}

{{/* The names in the hub's certificate, which agents accept, as a JSON list. */}}
{{- define "nodevitals.hubNames" -}}
{{- toJson (default (list (printf "%s.%s.svc" (include "nodevitals.hubName" .) .Release.Namespace)) .Values.hub.names) -}}
{{- end -}}

{{- define "nodevitals.hubTokenSecret" -}}
{{- default (printf "%s-token" (include "nodevitals.hubName" .)) .Values.hub.tokenSecret -}}
{{- end -}}

{{- define "nodevitals.hubSecret" -}}
{{- if eq .Values.fabric.certificates "existing" -}}
{{- required "fabric.certificates is existing: set hub.secret to the name of the Secret with the hub's certificate" .Values.hub.secret -}}
{{- else -}}
{{- include "nodevitals.hubName" . }}-fabric
{{- end -}}
{{- end -}}

{{/* The launcher of collectives that needs the API server, or nothing. */}}
{{- define "nodevitals.hubLauncher" -}}
{{- $launcher := dig "collectives" "launcher" "none" (.Values.hub.config | default dict) -}}
{{- if has $launcher (list "volcano" "mpijob") -}}{{ $launcher }}{{- end -}}
{{- end -}}

{{/* Whether the hub follows the resource Check: true or nothing. */}}
{{- define "nodevitals.hubResources" -}}
{{- if dig "resources" "enabled" false (.Values.hub.config | default dict) -}}true{{- end -}}
{{- end -}}

{{/* Whether the hub reads nodes, and takes them out of service at the API server: read, write or nothing. */}}
{{- define "nodevitals.hubNodes" -}}
{{- $config := .Values.hub.config | default dict -}}
{{- if eq (dig "out_of_service" "scheduler" "" $config) "kubernetes" -}}
{{- ternary "read" "write" (dig "out_of_service" "dry_run" true $config) -}}
{{- end -}}
{{- end -}}

{{/*
What the hub creates to repair nodes, as a JSON list of {group, resource, namespace, remove}: of entries that
are no dry run, whose objects are in hub.repairManifests.
*/}}
{{- define "nodevitals.hubRepairs" -}}
{{- $out := dig "out_of_service" dict (.Values.hub.config | default dict) -}}
{{- $manifests := .Values.hub.repairManifests | default dict -}}
{{- $found := list -}}
{{- if not (dig "dry_run" true $out) -}}
{{- range $entry := dig "repairs" list $out -}}
{{- $file := get $entry "manifest_file" | default "" -}}
{{- $object := get $manifests (trimPrefix "/etc/nodevitals/" $file) -}}
{{- if and $object (hasPrefix "/etc/nodevitals/" $file) (not (dig "dry_run" true $entry)) -}}
{{- $version := get $object "apiVersion" | default "" | toString -}}
{{- $group := ternary (first (splitList "/" $version)) "" (contains "/" $version) -}}
{{- $kind := get $object "kind" | default "" | toString -}}
{{- $resource := get $entry "resource" | default (printf "%ss" (lower $kind)) -}}
{{- $found = append $found (dict "group" $group "resource" $resource "namespace" (dig "metadata" "namespace" "" $object) "remove" (dig "remove" false $entry)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- uniq $found | toJson -}}
{{- end -}}

{{/* Whether a repair that is no dry run waits until no pod is left on its node: true or nothing. */}}
{{- define "nodevitals.hubRepairsWait" -}}
{{- $out := dig "out_of_service" dict (.Values.hub.config | default dict) -}}
{{- $waits := "" -}}
{{- range $entry := dig "repairs" list $out -}}
{{- if dig "when_empty" true $entry -}}{{- $waits = "true" -}}{{- end -}}
{{- end -}}
{{- $waits -}}
{{- end -}}

{{/* Whether the hub needs the API server: true or nothing. */}}
{{- define "nodevitals.hubApiServer" -}}
{{- if or (include "nodevitals.hubResources" .) (include "nodevitals.hubLauncher" .) (include "nodevitals.hubNodes" .) (include "nodevitals.hubRepairs" . | fromJsonArray) -}}true{{- end -}}
{{- end -}}

{{/*
hub.yaml: what the chart itself knows, over it hub.config. A list of nodes of the site replaces that
of the chart: a node that two lists name differently would be two.
*/}}
{{- define "nodevitals.hubConfig" -}}
{{- $values := .Values -}}
{{- $own := $values.hub.config | default dict | deepCopy -}}
{{- $chart := dict -}}
{{- $nodes := $own.nodes | default dict -}}
{{- if not (or $nodes.static $nodes.file_sd $nodes.dns_sd) -}}
{{- if $values.fabric.peers -}}
{{- $_ := set $chart "nodes" (dict "static" (list (dict "targets" $values.fabric.peers))) -}}
{{- else if $values.service.enabled -}}
{{- $name := printf "%s-headless.%s.svc" (include "nodevitals.fullname" .) .Release.Namespace -}}
{{- $_ := set $chart "nodes" (dict "dns_sd" (list $name)) -}}
{{- end -}}
{{- end -}}
{{- if $values.fabric.enabled -}}
{{- $folder := "/etc/nodevitals-fabric" -}}
{{- $tls := dict "cert_file" (printf "%s/tls.crt" $folder) "key_file" (printf "%s/tls.key" $folder) "ca_file" (printf "%s/ca.crt" $folder) -}}
{{- $scheme := ternary "https" "http" $values.agent.web.tls -}}
{{- $agents := dict "token_file" "/etc/nodevitals-hub-token/token" "tls" $tls "metrics_port" $values.agent.port "metrics_scheme" $scheme -}}
{{- $metrics := $values.hub.agentMetrics -}}
{{- if $metrics.caSecret -}}
{{- $_ := set $agents "metrics_tls_config" (dict "ca_file" "/etc/nodevitals-agents-ca/ca.crt") -}}
{{- end -}}
{{- if $metrics.username -}}
{{- $_ := set $agents "metrics_basic_auth" (dict "username" $metrics.username "password_file" "/etc/nodevitals-agents-password/password") -}}
{{- end -}}
{{- $_ := set $chart "agents" $agents -}}
{{- end -}}
{{- if include "nodevitals.hubLauncher" . -}}
{{- $_ := set $chart "collectives" (dict "namespace" .Release.Namespace) -}}
{{- end -}}
{{- if $values.hub.tokensSecret -}}
{{- $_ := set $chart "access" (dict "tokens_file" "/etc/nodevitals-hub-tokens/tokens.yaml") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $chart $own (dict "state_directory" "/var/lib/nodevitals-hub")) -}}
{{- end -}}

{{- define "nodevitals.hubPod" -}}
{{- $values := .Values -}}
{{- $hub := .Values.hub -}}
serviceAccountName: {{ include "nodevitals.hubServiceAccountName" . }}
automountServiceAccountToken: {{ include "nodevitals.hubApiServer" . | not | not }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $hub.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
enableServiceLinks: false
# At SIGTERM it ends tests, and stores what it has.
terminationGracePeriodSeconds: 30
{{- with $hub.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $hub.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $hub.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ int64 $hub.runAsUser }}
  runAsGroup: {{ int64 $hub.runAsUser }}
  # The volumes and the secrets belong to this group.
  fsGroup: {{ int64 $hub.runAsUser }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
containers:
  - {{- include "nodevitals.hubContainer" . | nindent 4 }}
volumes:
  - name: config
    configMap:
      name: {{ include "nodevitals.hubName" . }}
  - name: tmp
    emptyDir: {sizeLimit: {{ $hub.tmpSizeLimit }}}
  - name: state
    {{- if $hub.persistence.enabled }}
    persistentVolumeClaim:
      claimName: {{ default (include "nodevitals.hubName" .) $hub.persistence.existingClaim }}
    {{- else }}
    emptyDir: {}
    {{- end }}
  {{- with $hub.web.secret }}
  - name: web
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
  {{- with $hub.tokensSecret }}
  - name: tokens
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
  {{- if $values.fabric.enabled }}
  - name: fabric
    secret: {secretName: {{ include "nodevitals.hubSecret" . }}, defaultMode: 0440}
  - name: token
    secret: {secretName: {{ include "nodevitals.hubTokenSecret" . }}, defaultMode: 0440}
  {{- with $hub.agentMetrics.caSecret }}
  - name: agents-ca
    secret: {secretName: {{ . }}, defaultMode: 0440, items: [{key: ca.crt, path: ca.crt}]}
  {{- end }}
  {{- with $hub.agentMetrics.passwordSecret }}
  - name: agents-password
    secret: {secretName: {{ . }}, defaultMode: 0440, items: [{key: password, path: password}]}
  {{- end }}
  {{- end }}
  {{- with $hub.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "nodevitals.hubContainer" -}}
{{- $hub := .Values.hub -}}
name: hub
image: {{ include "nodevitals.image" (dict "repository" $hub.image.repository "digest" $hub.image.digest "tag" (default .Chart.AppVersion $hub.image.tag)) }}
imagePullPolicy: {{ $hub.image.pullPolicy }}
command: [nodevitals]
args:
  - hub
  - --config.file=/etc/nodevitals/hub.yaml
  - --web.listen-address=:{{ $hub.port }}
  {{- if $hub.web.secret }}
  - --web.config.file=/etc/nodevitals-web/web-config.yaml
  {{- end }}
  - --log.level={{ $hub.logLevel }}
  - --log.format={{ $hub.logFormat }}
{{- with $hub.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: http
    containerPort: {{ $hub.port }}
{{- range $kind := tuple "startupProbe" "livenessProbe" "readinessProbe" }}
{{- with get $hub $kind }}
{{ $kind }}:
  {{- include "nodevitals.httpProbe" (dict "path" "/healthz" "port" "http" "tls" $hub.web.tls "probe" .) | nindent 2 }}
{{- end }}
{{- end }}
{{- with $hub.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
volumeMounts:
  - {name: config, mountPath: /etc/nodevitals, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  - {name: state, mountPath: /var/lib/nodevitals-hub}
  {{- if $hub.web.secret }}
  - {name: web, mountPath: /etc/nodevitals-web, readOnly: true}
  {{- end }}
  {{- if $hub.tokensSecret }}
  - {name: tokens, mountPath: /etc/nodevitals-hub-tokens, readOnly: true}
  {{- end }}
  {{- if .Values.fabric.enabled }}
  - {name: fabric, mountPath: /etc/nodevitals-fabric, readOnly: true}
  - {name: token, mountPath: /etc/nodevitals-hub-token, readOnly: true}
  {{- if $hub.agentMetrics.caSecret }}
  - {name: agents-ca, mountPath: /etc/nodevitals-agents-ca, readOnly: true}
  {{- end }}
  {{- if $hub.agentMetrics.passwordSecret }}
  - {name: agents-password, mountPath: /etc/nodevitals-agents-password, readOnly: true}
  {{- end }}
  {{- end }}
  {{- with $hub.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
